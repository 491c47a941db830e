// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/convert/merge.h"

#include <algorithm>

#include "skein/adapter/adapter_config.h"
#include "skein/checkpoint/files/model_check.h"
#include "skein/convert/merge_plan.h"
#include "skein/convert/model_text.h"
#include "skein/convert/output_folder.h"
#include "skein/core/error.h"
#include "skein/core/folder.h"
#include "skein/core/log.h"
#include "skein/plan/chat_files.h"

namespace skein::convert {
namespace {

// What the adapter's tokenizer and its template say of the model; nothing without one.
plan::AlignedIds ids_of(const plan::ModelFolder& model) try {
  const auto folder = model.tokenizer_folder();
  if (folder != model.adapter || !fs::exists(folder / "tokenizer.json")) return {};
  plan::TextFiles files;
  const auto add = [&](const fs::path& from, const char* name) {
    if (fs::exists(from / name)) files[name] = read_beneath(from, name);
  };
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}) {
    add(folder, name);
  }
  add(model.folder_of(kGenerationName), kGenerationName);
  return plan::align_ids(read_beneath(model.weights, "config.json"), files,
                         text::ChatTemplate::find({.folder = folder, .file = "", .name = ""}));
} catch (const UserError& error) {
  log_warning("bos_token_id, eos_token_id and pad_token_id stay the base's: {}", error.what());
  return {};
}

uint64_t rows_of(const std::vector<checkpoint::TensorEntry>& entries, const std::string& name) {
  const auto found = std::ranges::find(entries, name, &checkpoint::TensorEntry::name);
  return found == entries.end() || found->shape.empty() ? 0 : found->shape[0];
}

}  // namespace

MergeSummary merge_adapter(const MergeOptions& options) {
  const auto& model = options.model;
  const auto config = adapter::read_adapter_config(model.adapter);
  const auto base = open_base_model(model.weights);
  const auto tensors = checkpoint::open_model_files(model.adapter, checkpoint::kAdapterStem);
  const auto plan = plan_merge(base, tensors, config);
  std::vector<checkpoint::TensorEntry> entries;
  for (const auto& job : plan.jobs) entries.push_back(job.entry);
  const auto layout = checkpoint::lay_out_files("model", entries, options.max_shard_bytes);
  const OutputOptions output{
      .folder = options.out, .overwrite = options.overwrite, .inputs = model.parts()};
  check_output(output);  // before the long reading
  const auto ids = ids_of(model);
  for (const auto& folder : output.inputs) checkpoint::check_model(folder);
  OutputFolder out(output, bytes_of(layout));
  write_tensors(layout, plan.jobs, out.path(), "merging");
  if (!layout.index_name.empty()) write_text(out.path() / layout.index_name, layout.index);
  write_text(out.path() / "config.json",
             plan::with_changes(changed_config(base, plan.config), ids.config_changes));
  copy_model_texts(model, ids.generation, out.path());
  out.commit();
  return {.num_adapted = plan.loras.size(),
          .num_replaced = plan.num_replaced,
          .untied_head = plan.config.untie_head,
          .num_rows = rows_of(entries, base.embedding_name()),
          .num_files = layout.files.size(),
          .bytes = bytes_of(layout)};
}

}  // namespace skein::convert
