// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// Compiled for several instruction sets, with products and sums in one rounding where there is one.
#include "skein/gradient_features/files/dot_products.h"

#include <algorithm>

#include "skein/core/parallel.h"

namespace skein::gradient_features {
namespace {

constexpr int64_t kLanes = 8;
constexpr int64_t kChunk = 1024;        // columns: a chunk of the others stays in the cache
constexpr int64_t kRowsPerThread = 16;  // taken at a time
constexpr int kTileRows = 4,
              kTileOthers = 3;  // whose sums, with a row and others, are 16 registers

using Lanes [[gnu::vector_size(kLanes * sizeof(float))]] = float;
using LooseLanes [[gnu::vector_size(kLanes * sizeof(float)), gnu::aligned(4), gnu::may_alias]] =
    float;

// By reference: a vector that is returned would be another one for each instruction set.
inline void load(const float* from, Lanes& lanes) {
  lanes = *reinterpret_cast<const LooseLanes*>(from);
}

inline double sum(const Lanes& lanes) {
  double total = 0;
  for (int64_t i = 0; i < kLanes; ++i) total += lanes[i];
  return total;
}

// One tile over one chunk: adds to products[r * stride + o].
template <int Rows, int Others>
inline void add_tile(const float* const* rows, const float* const* others, int64_t columns,
                     double* products, int64_t stride) {
  Lanes sums[Rows][Others] = {};
  int64_t column = 0;
  for (; column + kLanes <= columns; column += kLanes) {
    Lanes other[Others];
    for (int o = 0; o < Others; ++o) load(others[o] + column, other[o]);
    for (int r = 0; r < Rows; ++r) {
      Lanes row;
      load(rows[r] + column, row);
      for (int o = 0; o < Others; ++o) sums[r][o] += row * other[o];
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int o = 0; o < Others; ++o) {
      float rest = 0;
      for (int64_t c = column; c < columns; ++c) rest += rows[r][c] * others[o][c];
      products[r * stride + o] += sum(sums[r][o]) + rest;
    }
  }
}

struct Job {
  const RowsView& rows;
  const RowsView& others;
  int64_t columns;
  double* products;
  double* squares;
};

template <int Rows>
inline void add_rows(const Job& job, int64_t first, int64_t begin, int64_t columns) {
  const float* rows[Rows];
  for (int r = 0; r < Rows; ++r) rows[r] = job.rows.data + (first + r) * job.rows.stride + begin;
  const int64_t count = job.others.count;
  double* products = job.products + first * count;
  int64_t o = 0;
  const auto others_from = [&](int64_t place) {
    return job.others.data + place * job.others.stride + begin;
  };
  for (; o + kTileOthers <= count; o += kTileOthers) {
    const float* others[kTileOthers];
    for (int i = 0; i < kTileOthers; ++i) others[i] = others_from(o + i);
    add_tile<Rows, kTileOthers>(rows, others, columns, products + o, count);
  }
  for (; o < count; ++o) {
    const float* other = others_from(o);
    add_tile<Rows, 1>(rows, &other, columns, products + o, count);
  }
  for (int r = 0; r < Rows; ++r) {
    add_tile<1, 1>(rows + r, rows + r, columns, job.squares + first + r, 1);
  }
}

inline void multiply(const Job& job, int64_t first, int64_t last) {
  for (int64_t begin = 0; begin < job.columns; begin += kChunk) {
    const int64_t columns = std::min(kChunk, job.columns - begin);
    int64_t row = first;
    for (; row + kTileRows <= last; row += kTileRows) add_rows<kTileRows>(job, row, begin, columns);
    for (; row < last; ++row) add_rows<1>(job, row, begin, columns);
  }
}

[[gnu::flatten]] void multiply_plain(const Job& job, int64_t first, int64_t last) {
  multiply(job, first, last);
}
#ifdef __x86_64__
[[gnu::flatten, gnu::target("avx2,fma")]] void multiply_avx2(const Job& job, int64_t first,
                                                             int64_t last) {
  multiply(job, first, last);
}
#endif

using Multiply = void (*)(const Job&, int64_t, int64_t);
Multiply fastest_multiply() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0) {
    return multiply_avx2;
  }
#endif
  return multiply_plain;
}

}  // namespace

DotProducts dot_products(const RowsView& rows, const RowsView& others, int64_t columns,
                         int threads) {
  static const Multiply multiply_rows = fastest_multiply();
  DotProducts sums{.products = std::vector<double>(static_cast<size_t>(rows.count * others.count)),
                   .squares = std::vector<double>(static_cast<size_t>(rows.count))};
  const Job job{rows, others, columns, sums.products.data(), sums.squares.data()};
  const int64_t parts = (rows.count + kRowsPerThread - 1) / kRowsPerThread;
  for_each_index(parts, threads, [&](int64_t part) {
    const int64_t first = part * kRowsPerThread;
    multiply_rows(job, first, std::min(first + kRowsPerThread, rows.count));
  });
  return sums;
}

}  // namespace skein::gradient_features
