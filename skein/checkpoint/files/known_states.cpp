// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/files/known_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <thread>

#include "skein/checkpoint/files/model_files.h"

namespace skein::checkpoint {
namespace {

const std::map<std::string, std::vector<TensorEntry>> kStored = {
    {"model",
     {{"wte.weight", DType::kU8, {40, 5}},
      {"h.0.weight", DType::kU8, {150}},
      {"h.1.weight", DType::kU8, {90}}}},
    {"optimizer", {{"wte.weight.exp_avg", DType::kF32, {50}}, {"wte.step", DType::kF32, {3}}}}};

// Unlike those of any other tensor or version.
std::string stored_bytes(int version, const std::string& name, uint64_t size) {
  std::mt19937_64 random(std::hash<std::string>()(fmt::format("{} {}", version, name)));
  std::string bytes(size, '\0');
  for (auto& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

}  // namespace

std::string state_text(int version) {
  return fmt::format("{{\"global_step\": 7, \"v\": {}}}", version);
}

Job KnownStates::job_of(const KnownSave& save, int rank) {
  Job job;
  job.texts = {{"config.json", "{}"},
               {"additional_chat_templates/tools.jinja", "{{ messages }}"},
               {"trainer_state.json", state_text(save.version)}};
  for (const auto& [stem, entries] : kStored) {
    if (save.step == 0 && stem != "model") continue;
    auto layout = lay_out_files(stem, entries, save.shard_bytes);
    for (auto& file : layout.files) add_file(std::move(file), save.version, rank, job);
    if (!layout.index.empty()) job.texts[layout.index_name] = layout.index;
  }
  return job;
}

// Each rank writes an equal part of every tensor.
void KnownStates::add_file(FileLayout file, int version, int rank, Job& job) {
  for (const auto& tensor : file.tensors) {
    const uint64_t size = tensor.end - tensor.begin;
    const uint64_t begin = size * rank / kNumWriters, end = size * (rank + 1) / kNumWriters;
    auto& bytes = memory_.emplace_back(std::make_unique<std::string>(
        stored_bytes(version, tensor.name, size).substr(begin, end - begin)));
    job.pieces.push_back({job.files.size(), file.header.size() + tensor.begin + begin,
                          std::as_bytes(std::span(*bytes))});
  }
  job.files.push_back(std::move(file));
}

std::vector<std::string> KnownStates::save(const KnownSave& save, const fs::path& output) {
  ++num_saves_;
  std::vector<Job> jobs;
  for (int rank = 0; rank < kNumWriters; ++rank) jobs.push_back(job_of(save, rank));
  std::vector<std::string> failures(kNumWriters);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kNumWriters; ++rank) {
    ranks.emplace_back([&, rank] {
      Exchange exchange(
          store_,
          {.prefix = fmt::format("checkpoint/t/{}", num_saves_), .rank = rank, .size = kNumWriters},
          stop_);
      const CommitOptions options{.output = output,
                                  .step = save.step,
                                  .token = "00000001",
                                  .save_total_limit = save.limit,
                                  .conditions = {}};
      failures[rank] = save.step == 0 ? write_model(jobs[rank], options, exchange)
                                      : write_checkpoint(jobs[rank], options, exchange);
    });
  }
  for (auto& rank : ranks) rank.join();
  return failures;
}

bool has_version(const fs::path& folder, const std::string& stem, int version) {
  const auto files = open_model_files(folder, stem);
  if (files.tensors.size() != kStored.at(stem).size()) return false;
  return std::ranges::all_of(files.tensors, [&](const auto& named) {
    const auto& [file, tensor] = named.second;
    std::string bytes(tensor->end - tensor->begin, '\0');
    file->file.read_at(file->header.data_begin + tensor->begin,
                       std::as_writable_bytes(std::span(bytes)));
    return bytes == stored_bytes(version, named.first, bytes.size());
  });
}

}  // namespace skein::checkpoint
