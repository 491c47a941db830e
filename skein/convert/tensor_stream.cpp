// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/convert/tensor_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <unordered_map>

#include "skein/convert/float_values.h"
#include "skein/convert/low_rank.h"
#include "skein/core/error.h"
#include "skein/core/parallel.h"
#include "skein/core/progress.h"
#include "skein/core/stop_signals.h"
#include "skein/core/system_failure.h"

namespace skein::convert {
namespace {

using checkpoint::PlacedTensor;
using checkpoint::StoredTensor;

constexpr uint64_t kBlockElements = uint64_t{4} << 20;

uint64_t elements_of(const PlacedTensor& tensor) {
  return (tensor.end - tensor.begin) / dtype_bytes(tensor.dtype);
}

// Elements [first, first + count), as they are stored.
void read_elements(const StoredTensor& stored, uint64_t first, std::span<std::byte> bytes) {
  const auto& tensor = *stored.tensor;
  const uint64_t offset =
      stored.file->header.data_begin + tensor.begin + first * dtype_bytes(tensor.dtype);
  try_again([&] { stored.file->file.read_at(offset, bytes); });
}

std::vector<float> read_floats(const StoredTensor& stored) {
  const auto& tensor = *stored.tensor;
  std::vector<std::byte> bytes(tensor.end - tensor.begin);
  read_elements(stored, 0, bytes);
  std::vector<float> values(elements_of(tensor));
  to_floats(tensor.dtype, bytes, values);
  return values;
}

// Blocks of one tensor's elements, from first to last.
void for_each_block(uint64_t elements, uint64_t block,
                    const std::function<void(uint64_t first, uint64_t count)>& work) {
  for (uint64_t first = 0; first < elements; first += block) {
    end_if_stop_waits();
    work(first, std::min(block, elements - first));
  }
}

// The elements of a source as floats, with what LoRA and DoRA make of them.
class MergedRows {
 public:
  explicit MergedRows(const TensorJob& job) : job_(job), threads_(num_threads(0)) {
    if (job.lora == nullptr) return;
    const auto& shape = job.entry.shape;
    update_ = {.rows = shape[0],
               .rank = job.lora->a->tensor->shape[0],
               .columns = shape[1],
               .left = read_floats(*job.lora->b),
               .right = read_floats(*job.lora->a),
               .scale = static_cast<float>(job.scale)};
    if (job.transposed) {
      std::swap(update_.left, update_.right);
      update_.left = transposed(update_.left, update_.rank, update_.rows);
      update_.right = transposed(update_.right, update_.columns, update_.rank);
    }
    if (job.lora->magnitude != nullptr) find_factors();
  }

  // So many elements at a time.
  uint64_t block() const {
    if (job_.lora == nullptr || update_.columns == 0) return kBlockElements;
    return std::max<uint64_t>(1, kBlockElements / update_.columns) * update_.columns;
  }

  std::span<const float> values(uint64_t first, uint64_t count) {
    const auto values = sums(first, count);
    if (magnitudes_.empty()) return values;
    const uint64_t columns = update_.columns;
    for_each_index(static_cast<int64_t>(count / columns), threads_, [&](int64_t index) {
      const auto row = static_cast<uint64_t>(index);
      const auto begin = values.begin() + static_cast<ptrdiff_t>(row * columns);
      if (job_.transposed) {
        for (uint64_t j = 0; j < columns; ++j) begin[static_cast<ptrdiff_t>(j)] *= magnitudes_[j];
        return;
      }
      double squares = 0;
      for (uint64_t j = 0; j < columns; ++j) squares += square(begin[static_cast<ptrdiff_t>(j)]);
      const float factor =
          magnitudes_[first / columns + row] / static_cast<float>(std::sqrt(squares));
      for (uint64_t j = 0; j < columns; ++j) begin[static_cast<ptrdiff_t>(j)] *= factor;
    });
    return values;
  }

 private:
  static double square(float value) { return static_cast<double>(value) * value; }

  std::span<float> sums(uint64_t first, uint64_t count) {
    const auto dtype = job_.source->tensor->dtype;
    bytes_.resize(count * dtype_bytes(dtype));
    values_.resize(count);
    read_elements(*job_.source, first, bytes_);
    to_floats(dtype, bytes_, values_);
    if (job_.lora != nullptr) add_low_rank(update_, first / update_.columns, values_, threads_);
    return values_;
  }

  // DoRA gives every output its own length. Outputs are rows, whose length is known with the row;
  // or columns, which have to be gone through once before.
  void find_factors() {
    magnitudes_ = read_floats(*job_.lora->magnitude);
    if (!job_.transposed) return;
    std::vector<double> squares(update_.columns);
    for_each_block(update_.rows * update_.columns, block(), [&](uint64_t first, uint64_t count) {
      const auto values = sums(first, count);
      for (uint64_t i = 0; i < count; ++i) squares[i % update_.columns] += square(values[i]);
    });
    for (uint64_t j = 0; j < squares.size(); ++j) {
      magnitudes_[j] /= static_cast<float>(std::sqrt(squares[j]));
    }
  }

  const TensorJob& job_;
  const int threads_;
  LowRank update_;
  std::vector<float> magnitudes_;  // of rows; of columns: over their lengths
  std::vector<std::byte> bytes_;
  std::vector<float> values_;
};

void check_values(const TensorJob& job, std::span<const float> values, uint64_t too_large) {
  const auto& entry = job.entry;
  if (too_large > 0) {
    throw UserError(fmt::format("{} values of '{}' are too large for {}: take bfloat16 or float32",
                                too_large, entry.name, dtype_word(entry.dtype)));
  }
  if (!job.adapted) return;
  if (std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) return;
  throw UserError(fmt::format(
      "'{}' would hold values that are not finite: the adapter, or its base, is damaged",
      entry.name));
}

class FileWriter {
 public:
  FileWriter(const checkpoint::FileLayout& layout, const fs::path& folder, Progress& progress)
      : layout_(layout), file_(File::create(folder / layout.name)), progress_(progress) {
    file_.reserve(layout.size);
    write(0, std::as_bytes(std::span(layout.header)));
  }

  void take(const TensorJob& job, const PlacedTensor& place) {
    const uint64_t begin = layout_.header.size() + place.begin;
    const auto width = dtype_bytes(place.dtype);
    if (job.lora == nullptr && job.source->tensor->dtype == place.dtype) {
      for_each_block(elements_of(place), kBlockElements, [&](uint64_t first, uint64_t count) {
        bytes_.resize(count * width);
        read_elements(*job.source, first, bytes_);
        if (job.adapted && has_float_values(place.dtype)) {
          values_.resize(count);
          to_floats(place.dtype, bytes_, values_);
          check_values(job, values_, 0);
        }
        write(begin + first * width, bytes_);
      });
      return;
    }
    MergedRows rows(job);
    for_each_block(elements_of(place), rows.block(), [&](uint64_t first, uint64_t count) {
      const auto values = rows.values(first, count);
      bytes_.resize(count * width);
      check_values(job, values, from_floats(values, place.dtype, bytes_));
      write(begin + first * width, bytes_);
    });
  }

  void finish() { file_.sync(); }

 private:
  void write(uint64_t offset, std::span<const std::byte> bytes) {
    file_.write_at(offset, bytes);
    progress_.add(bytes.size());
  }

  const checkpoint::FileLayout& layout_;
  File file_;
  Progress& progress_;
  std::vector<std::byte> bytes_;
  std::vector<float> values_;
};

}  // namespace

void check_convertible(const std::string& name, DType from, DType to) {
  if (from == to || (has_float_values(from) && has_float_values(to))) return;
  throw UserError(fmt::format("'{}' is {} and cannot be written as {}", name, dtype_word(from),
                              dtype_word(to)));
}

uint64_t bytes_of(const checkpoint::Layout& layout) {
  uint64_t bytes = layout.index.size();
  for (const auto& file : layout.files) bytes += file.size;
  return bytes;
}

void write_tensors(const checkpoint::Layout& layout, const std::vector<TensorJob>& jobs,
                   const fs::path& folder, const std::string& what) {
  std::unordered_map<std::string_view, const TensorJob*> by_name;
  for (const auto& job : jobs) by_name[job.entry.name] = &job;
  Progress progress(what, bytes_of(layout));
  for (const auto& file : layout.files) {
    FileWriter writer(file, folder, progress);
    for (const auto& place : file.tensors) writer.take(*by_name.at(place.name), place);
    writer.finish();
  }
}

bool same_tensor(const StoredTensor& one, const StoredTensor& other) {
  if (one.tensor->dtype != other.tensor->dtype || one.tensor->shape != other.tensor->shape) {
    return false;
  }
  bool same = true;
  std::vector<std::byte> left, right;
  for_each_block(elements_of(*one.tensor), kBlockElements, [&](uint64_t first, uint64_t count) {
    if (!same) return;
    left.resize(count * dtype_bytes(one.tensor->dtype));
    right.resize(left.size());
    read_elements(one, first, left);
    read_elements(other, first, right);
    same = std::ranges::equal(left, right);
  });
  return same;
}

}  // namespace skein::convert
