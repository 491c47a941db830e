// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// Loops in plain C++, compiled for several instruction sets: CMakeLists.txt lets the compiler
// vectorize them and forbids it to contract a product and a sum into one rounding.
#include "skein/ops/cpu/adamw.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "skein/core/error.h"
#include "skein/core/parallel.h"
#include "skein/ops/adamw_formula.h"
#include "skein/ops/moment_code.h"
#include "skein/ops/random_rounding.h"

namespace skein::ops {
namespace {

// How elements are stored, and what they are in the loop. Conversions are without branches, so that
// they vectorize; they round to the nearest, ties to even.
template <typename T>
struct Plain {
  using Stored = T;
  static T widen(T value) { return value; }
};

struct BFloat16 {
  using Stored = uint16_t;
  static float widen(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
  static uint16_t narrow(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    return static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded);
  }
};

struct Half {
  using Stored = uint16_t;
  // The exponent's bias is 112 less than fp32's: a product with 2¹¹² moves it, and makes numbers of
  // subnormal ones.
  static float widen(uint16_t bits) {
    const uint32_t sign = uint32_t{bits} << 16 & 0x80000000;
    const uint32_t magnitude = uint32_t{bits} << 13 & 0x0FFFE000;
    const auto finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
    const uint32_t special = magnitude | 0x7F800000;  // infinity or NaN
    return std::bit_cast<float>(sign | (magnitude >= 0x0F800000 ? special : finite));
  }
  static uint16_t narrow(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
    // Of 0.5 the last bit is 2⁻²⁴, fp16's smallest number: the sum rounds to multiples of it.
    const auto tiny = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000;
    const uint32_t normal = (magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13;
    const uint32_t finite = magnitude < 0x38800000 ? tiny : normal;      // 2⁻¹⁴
    const uint32_t bounded = magnitude >= 0x47800000 ? 0x7C00 : finite;  // 2¹⁶
    return static_cast<uint16_t>(sign | (magnitude > 0x7F800000 ? 0x7E00 : bounded));
  }
};

constexpr MomentCode kSigned = make_moment_code(true), kUnsigned = make_moment_code(false);

struct Part {
  const HostAdamW* call = nullptr;
  AdamWConstants constants;
  int64_t begin = 0, end = 0;
};

template <typename Element, typename Pointer>
auto* elements(Pointer* array, const Part& part) {
  using Stored = std::conditional_t<std::is_const_v<Pointer>, const typename Element::Stored,
                                    typename Element::Stored>;
  return static_cast<Stored*>(array) + part.begin;
}

template <typename W, typename Weight>
auto* separate_weights(const Part& part) {
  constexpr bool kSeparate = !std::is_same_v<Weight, Plain<W>>;
  return elements<Weight>(kSeparate ? part.call->weights : part.call->master, part);
}

// Nobody reads new 16-bit weights here: written past the caches, their old values are not loaded
// first, which would be two of thirty bytes an element.
template <typename T>
void write_past_caches(T* to, const T* from, int64_t count) {
#if defined(__x86_64__)
  if (reinterpret_cast<uintptr_t>(to) % sizeof(__m128i) == 0) {
    constexpr int64_t kStep = sizeof(__m128i) / sizeof(T);
    for (; count >= kStep; to += kStep, from += kStep, count -= kStep) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    }
  }
#endif
  std::copy(from, from + count, to);
}

// Before others are told that the weights are there.
void finish_writes() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

template <typename W, typename Weight, typename Gradient>
void update(const Part& part) {
  constexpr bool kSeparate = !std::is_same_v<Weight, Plain<W>>;
  constexpr int64_t kPiece = 1024;  // what of the new weights waits in a cache
  const AdamWFormula<W> formula(part.constants);
  const auto* __restrict gradient = elements<Gradient>(part.call->gradient, part);
  auto* __restrict master = elements<Plain<W>>(part.call->master, part);
  auto* __restrict exp_avg = elements<Plain<W>>(part.call->exp_avg, part);
  auto* __restrict exp_avg_sq = elements<Plain<W>>(part.call->exp_avg_sq, part);
  auto* __restrict weights = separate_weights<W, Weight>(part);
  typename Weight::Stored piece[kSeparate ? kPiece : 1];
  const int64_t count = part.end - part.begin;
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    const int64_t end = std::min(begin + kPiece, count);
    for (int64_t i = begin; i < end; ++i) {
      W m = exp_avg[i], v = exp_avg_sq[i], w = master[i];
      formula.update(Gradient::widen(gradient[i]), m, v, w);
      exp_avg[i] = m;
      exp_avg_sq[i] = v;
      master[i] = w;
      if constexpr (kSeparate) piece[i - begin] = Weight::narrow(w);
    }
    if constexpr (kSeparate) write_past_caches(weights + begin, piece, end - begin);
  }
  if constexpr (kSeparate) finish_writes();
}

// Returns the scale. Magnitudes are compared as integers: their order is the same, and a largest
// one can be searched for in any order.
float encode(const float* __restrict values, const MomentCode& code, uint8_t* __restrict bytes) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < kMomentBlock; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFF);
  }
  const auto scale = std::bit_cast<float>(largest);
  const float divisor = largest == 0 ? 1 : scale;
  for (int64_t i = 0; i < kMomentBlock; ++i) bytes[i] = code.nearest(values[i] / divisor);
  return scale;
}

// bf16 without a master.
struct RoundedAtRandom : BFloat16 {};

// What a block of elements is rounded with.
struct BlockNoise {
  uint32_t first[kRoundingBlock], second[kRoundingBlock];  // words of each element

  // `begin` is the block's first element in its part.
  BlockNoise(const Part& part, int64_t begin) {
    const auto& call = *part.call;
    const uint64_t key = random::mix(call.rounding_key, static_cast<uint64_t>(call.step));
    const int64_t block = (call.first_element + part.begin + begin) / kRoundingBlock;
    for (int64_t i = 0; i < kRoundingCalls; ++i) {
      const auto [low, high] = rounding_pair(key, block, i);
      first[i] = low.word[0];
      second[i] = low.word[1];
      first[kRoundingCalls + i] = high.word[0];
      second[kRoundingCalls + i] = high.word[1];
    }
  }
  RoundingBits bits(int64_t j) const { return {{first[j], second[j]}}; }
};

// Nothing but bf16: block by block, for the noise is drawn so.
template <typename Gradient>
void update_bfloat16(const Part& part) {
  const AdamWFormula<float> formula(part.constants);
  const auto* __restrict gradient = elements<Gradient>(part.call->gradient, part);
  auto* __restrict weights = elements<BFloat16>(part.call->weights, part);
  auto* __restrict exp_avg = elements<BFloat16>(part.call->exp_avg, part);
  auto* __restrict exp_avg_sq = elements<BFloat16>(part.call->exp_avg_sq, part);
  for (int64_t begin = 0; begin < part.end - part.begin; begin += kRoundingBlock) {
    const BlockNoise noise(part, begin);
    for (int64_t j = 0; j < kRoundingBlock; ++j) {
      const int64_t i = begin + j;
      float m = BFloat16::widen(exp_avg[i]), v = BFloat16::widen(exp_avg_sq[i]),
            w = BFloat16::widen(weights[i]);
      formula.update(Gradient::widen(gradient[i]), m, v, w);
      exp_avg[i] = round_at_random(m, noise.bits(j).exp_avg());
      exp_avg_sq[i] = round_at_random(v, noise.bits(j).exp_avg_sq());
      weights[i] = round_at_random(w, noise.bits(j).weight());
    }
  }
}

// Where the weights of a block come from and go to. With a master: it is the truth, and 16-bit
// weights are written beside it.
template <typename Weight>
struct BlockWeights {
  float* master;
  typename Weight::Stored* weights;

  BlockWeights(const Part& part, int64_t begin)
      : master(elements<Plain<float>>(part.call->master, part) + begin),
        weights(separate_weights<float, Weight>(part) + begin) {}
  float load(int64_t j) const { return master[j]; }
  void store(int64_t j, float value) const {
    master[j] = value;
    if constexpr (!std::is_same_v<Weight, Plain<float>>) weights[j] = Weight::narrow(value);
  }
};

template <>
struct BlockWeights<RoundedAtRandom> {
  uint16_t* weights;
  BlockNoise noise;

  BlockWeights(const Part& part, int64_t begin)
      : weights(elements<BFloat16>(part.call->weights, part) + begin), noise(part, begin) {}
  float load(int64_t j) const { return BFloat16::widen(weights[j]); }
  void store(int64_t j, float value) const {
    weights[j] = round_at_random(value, noise.bits(j).weight());
  }
};

// Block by block: moments are numbers only while their block is at hand.
template <typename Weight, typename Gradient>
void update_blocks(const Part& part) {
  const AdamWFormula<float> formula(part.constants);
  const auto* __restrict gradient = elements<Gradient>(part.call->gradient, part);
  auto* __restrict exp_avg = elements<Plain<uint8_t>>(part.call->exp_avg, part);
  auto* __restrict exp_avg_sq = elements<Plain<uint8_t>>(part.call->exp_avg_sq, part);
  for (int64_t begin = 0; begin < part.end - part.begin; begin += kMomentBlock) {
    const BlockWeights<Weight> weights(part, begin);
    auto& scale1 = part.call->exp_avg_scale[(part.begin + begin) / kMomentBlock];
    auto& scale2 = part.call->exp_avg_sq_scale[(part.begin + begin) / kMomentBlock];
    const float old_scale1 = scale1, old_scale2 = scale2;
    float m[kMomentBlock], v[kMomentBlock];
    for (int64_t j = 0; j < kMomentBlock; ++j) {
      const int64_t i = begin + j;
      float w = weights.load(j);
      m[j] = kSigned.values[exp_avg[i]] * old_scale1;
      v[j] = kUnsigned.values[exp_avg_sq[i]] * old_scale2;
      formula.update(Gradient::widen(gradient[i]), m[j], v[j], w);
      weights.store(j, w);
    }
    scale1 = encode(m, kSigned, exp_avg + begin);
    scale2 = encode(v, kUnsigned, exp_avg_sq + begin);
  }
}

template <typename Weight, typename Gradient>
void update_by_moments(const Part& part) {
  if (part.call->exp_avg_scale != nullptr) return update_blocks<Weight, Gradient>(part);
  if constexpr (std::is_same_v<Weight, RoundedAtRandom>) {
    update_bfloat16<Gradient>(part);
  } else {
    update<float, Weight, Gradient>(part);
  }
}

template <typename Weight>
void update_by_gradient(const Part& part) {
  switch (part.call->gradient_type) {
    case DType::kBF16:
      return update_by_moments<Weight, BFloat16>(part);
    case DType::kF16:
      return update_by_moments<Weight, Half>(part);
    default:
      return update_by_moments<Weight, Plain<float>>(part);
  }
}

void update_by_type(const Part& part) {
  switch (part.call->type) {
    case DType::kBF16:
      return part.call->master == nullptr ? update_by_gradient<RoundedAtRandom>(part)
                                          : update_by_gradient<BFloat16>(part);
    case DType::kF16:
      return update_by_gradient<Half>(part);
    case DType::kF64:
      return update<double, Plain<double>, Plain<double>>(part);
    default:
      return update_by_gradient<Plain<float>>(part);
  }
}

// `flatten` puts the loops into each of these functions, which then compiles them its own way.
[[gnu::flatten]] void update_baseline(const Part& part) { update_by_type(part); }
#if defined(__x86_64__)
[[gnu::flatten, gnu::target("avx2")]] void update_avx2(const Part& part) { update_by_type(part); }
[[gnu::flatten, gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void update_avx512(
    const Part& part) {
  update_by_type(part);
}
bool has_avx2() { return __builtin_cpu_supports("avx2") != 0; }
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
constexpr auto* update_avx2 = update_baseline;
constexpr auto* update_avx512 = update_baseline;
bool has_avx2() { return false; }
bool has_avx512() { return false; }
#endif

void check(const HostAdamW& call) {
  const auto is = [](DType type, auto... these) { return ((type == these) || ...); };
  const bool wide = call.type == DType::kF64;
  SKEIN_CHECK(wide || is(call.type, DType::kF32, DType::kBF16, DType::kF16),
              "AdamW takes float, bfloat16, half and double");
  SKEIN_CHECK(wide ? call.gradient_type == DType::kF64
                   : is(call.gradient_type, DType::kF32, DType::kBF16, DType::kF16),
              "AdamW takes gradients in float, bfloat16 and half, in double beside double");
  SKEIN_CHECK((call.weights != nullptr) == is(call.type, DType::kBF16, DType::kF16),
              "16-bit weights lie beside their master, others are it");
  const bool has_scales = call.exp_avg_scale != nullptr, has_master = call.master != nullptr;
  SKEIN_CHECK(has_scales == (call.exp_avg_sq_scale != nullptr),
              "both moments have scales, or none");
  SKEIN_CHECK(!has_scales || !wide, "moments in 8 bits do not lie beside double");
  SKEIN_CHECK(has_master || call.type == DType::kBF16, "only bfloat16 does without a master");
  SKEIN_CHECK((!has_scales && has_master) ||
                  (call.count % kMomentBlock == 0 && call.first_element % kRoundingBlock == 0),
              "small states are updated in whole blocks");
}

}  // namespace

std::vector<InstructionSet> instruction_sets() {
  std::vector<InstructionSet> sets = {InstructionSet::kBaseline};
  if (has_avx2()) sets.push_back(InstructionSet::kAvx2);
  if (has_avx512()) sets.push_back(InstructionSet::kAvx512);
  return sets;
}

void adamw_on_cpu(std::span<const HostAdamW> calls, const HostAdamWOptions& options) {
  // 3.5 MiB of traffic; less where threads are there already, or the last ones would be waited for.
  const int64_t part = int64_t{1} << (options.loop ? 15 : 17);
  std::vector<Part> parts;
  int64_t total = 0;
  for (const auto& call : calls) {
    check(call);
    total += call.count;
    const auto constants = adamw_constants(call, call.factor, static_cast<double>(call.step));
    for (int64_t begin = 0; begin < call.count; begin += part) {
      parts.push_back({&call, constants, begin, std::min(begin + part, call.count)});
    }
  }
  const auto run = options.instructions == InstructionSet::kAvx512 ? update_avx512
                   : options.instructions == InstructionSet::kAvx2 ? update_avx2
                                                                   : update_baseline;
  const auto work = [&](int64_t i) { run(parts[static_cast<size_t>(i)]); };
  if (options.loop) return options.loop(static_cast<int64_t>(parts.size()), work);
  // A thread that has less to do costs more than it brings.
  const auto threads = std::min<int64_t>(options.threads, (total + part - 1) / part);
  for_each_index(static_cast<int64_t>(parts.size()), static_cast<int>(threads), work);
}

}  // namespace skein::ops
