// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/score_file.h"

#include <fmt/format.h>

#include <charconv>

#include "skein/checkpoint/files/safetensors.h"
#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/core/hash.h"
#include "skein/gradient_features/files/new_file.h"
#include "skein/gradient_features/files/pt_writer.h"

namespace skein::gradient_features {
namespace {

constexpr const char* kKind = "skein gradient scores";
constexpr const char* kVersion = "1";
constexpr uint64_t kMaxScores = uint64_t{1} << 32;

struct Facts {
  uint64_t count = 0;
  int64_t max_samples = 0;
  std::string data_files;
  std::string digest;
};

std::string header_text(const Facts& facts) {
  std::vector<checkpoint::PlacedTensor> ignored;
  return checkpoint::build_header({{"scores", DType::kF32, {facts.count}}}, ignored,
                                  {{"format", "pt"},
                                   {"kind", kKind},
                                   {"version", kVersion},
                                   {"max_samples", fmt::format("{}", facts.max_samples)},
                                   {"data_files", facts.data_files},
                                   {"digest", facts.digest}});
}

std::string digest_of(const Facts& facts, std::span<const float> values) {
  return digest(fmt::format("{} {}\n{}\n{}\n{}\n", kKind, kVersion, facts.max_samples,
                            facts.data_files, digest(std::as_bytes(values))));
}

Facts facts_in(const checkpoint::Header& header, const fs::path& path) {
  const auto value = [&](const char* key) {
    const auto found = header.metadata.find(key);
    return found == header.metadata.end() ? std::string() : found->second;
  };
  if (value("kind") != kKind || header.tensors.size() != 1) {
    throw UserError(fmt::format(
        "{} holds no scores: give the _influence_score.safetensors that `skein gradients score` "
        "wrote",
        path.string()));
  }
  Facts facts{.data_files = value("data_files"), .digest = value("digest")};
  const auto samples = value("max_samples");
  std::from_chars(samples.data(), samples.data() + samples.size(), facts.max_samples);
  const auto& shape = header.tensors.front().shape;
  if (shape.size() == 1 && shape[0] <= kMaxScores) facts.count = shape[0];
  return facts;
}

}  // namespace

std::vector<fs::path> score_files(const fs::path& folder, const std::string& name) {
  const auto stem = name + "_influence_score";
  return {folder / (stem + ".safetensors"), folder / (stem + ".pt")};
}

std::vector<fs::path> write_scores(const fs::path& folder, const std::string& name,
                                   const Scores& scores) {
  const auto files = score_files(folder, name);
  make_directories(folder);
  for (const auto& file : files) sweep_temporaries_of(file);
  Facts facts{.count = scores.values.size(),
              .max_samples = scores.max_samples,
              .data_files = to_text(scores.data_files)};
  facts.digest = digest_of(facts, scores.values);
  const auto header = header_text(facts);
  NewFile file(files[0]);
  file.file().write_at(0, std::as_bytes(std::span(header)));
  file.file().write_at(header.size(), std::as_bytes(std::span(scores.values)));
  file.commit();
  PtWriter writer(files[1], DType::kF32, {static_cast<int64_t>(scores.values.size())});
  writer.append(scores.values);
  writer.commit();
  return files;
}

StoredScores read_scores(const fs::path& path) {
  if (path.extension() == ".pt") {
    throw UserError(fmt::format("{} is for other programs: give {}", shown(path.string()),
                                shown(fs::path(path).replace_extension(".safetensors").string())));
  }
  const auto file = File::open_to_read(path);
  const auto header = checkpoint::read_header(file, path.string());
  const auto facts = facts_in(header, path);
  std::string text(header.data_begin, '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  const auto damaged = [&] {
    return IoError(fmt::format(
        "{} is not what was written: make it again with `skein gradients score`", path.string()));
  };
  if (text != header_text(facts)) throw damaged();
  StoredScores scores{.values = std::vector<float>(facts.count), .max_samples = facts.max_samples};
  file.read_at(header.data_begin, std::as_writable_bytes(std::span(scores.values)));
  if (digest_of(facts, scores.values) != facts.digest) throw damaged();
  scores.data_files = parse_data_files(facts.data_files);
  return scores;
}

}  // namespace skein::gradient_features
