// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/convert/export.h"

#include <fmt/format.h>

#include "skein/checkpoint/files/model_check.h"
#include "skein/convert/base_model.h"
#include "skein/convert/float_values.h"
#include "skein/convert/model_text.h"
#include "skein/convert/output_folder.h"
#include "skein/convert/tensor_stream.h"

namespace skein::convert {
namespace {

std::vector<TensorJob> jobs_of(const BaseModel& model, std::optional<DType> dtype) {
  std::vector<TensorJob> jobs;
  for (const auto& file : model.files.files) {
    for (const auto& tensor : file.header.tensors) {
      const bool converts = dtype && tensor.dtype != *dtype && has_float_values(tensor.dtype);
      const bool is_tiny_float = tensor.dtype == DType::kF8E4M3 || tensor.dtype == DType::kF8E5M2;
      if (dtype && is_tiny_float) check_convertible(tensor.name, tensor.dtype, *dtype);
      jobs.push_back({.entry = {tensor.name, converts ? *dtype : tensor.dtype, tensor.shape},
                      .source = &model.files.tensors.at(tensor.name)});
    }
  }
  return jobs;
}

}  // namespace

ExportSummary export_model(const ExportOptions& options) {
  const auto model = open_base_model(options.model);
  const auto jobs = jobs_of(model, options.dtype);
  std::vector<checkpoint::TensorEntry> entries;
  for (const auto& job : jobs) entries.push_back(job.entry);
  const auto layout = checkpoint::lay_out_files("model", entries, options.max_shard_bytes);
  const OutputOptions output{
      .folder = options.out, .overwrite = options.overwrite, .inputs = {options.model}};
  check_output(output);  // before the long reading
  const bool verified = checkpoint::check_model(options.model);
  OutputFolder out(output, bytes_of(layout));
  write_tensors(layout, jobs, out.path(), "exporting");
  if (!layout.index_name.empty()) write_text(out.path() / layout.index_name, layout.index);
  write_text(out.path() / "config.json", changed_config(model, {.dtype = options.dtype}));
  copy_model_texts({.weights = model.folder, .adapter = {}}, "", out.path());
  out.commit();
  return {.verified = verified,
          .num_tensors = jobs.size(),
          .num_files = layout.files.size(),
          .bytes = bytes_of(layout)};
}

}  // namespace skein::convert
