// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// One loop in plain C++, compiled for several instruction sets: CMakeLists.txt lets the compiler
// vectorize it and forbids it to contract a product and a sum into one rounding.
#include "skein/ops/cpu/adamw.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "skein/core/error.h"
#include "skein/core/parallel.h"

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

// What the loop multiplies with. In double, and rounded there at last: `1 - beta` of a rounded beta
// would be wrong in the fifth digit.
struct Constants {
  double factor, gain1, gain2, beta2, inverse_root, epsilon, size, shrink;
};

Constants constants_of(const HostAdamW& call) {
  // Of a moment's bias towards its beginning, zero.
  const auto correction = [&](double beta) {
    return 1 - std::pow(beta, static_cast<double>(call.step));
  };
  return {.factor = call.factor,
          .gain1 = 1 - call.beta1,
          .gain2 = 1 - call.beta2,
          .beta2 = call.beta2,
          .inverse_root = 1 / std::sqrt(correction(call.beta2)),
          .epsilon = call.epsilon,
          .size = call.learning_rate / correction(call.beta1),
          .shrink = call.learning_rate * call.weight_decay};
}

struct Part {
  const HostAdamW* call = nullptr;
  Constants constants;
  int64_t begin = 0, end = 0;
};

template <typename Element, typename Pointer>
auto* elements(Pointer* array, const Part& part) {
  using Stored = std::conditional_t<std::is_const_v<Pointer>, const typename Element::Stored,
                                    typename Element::Stored>;
  return static_cast<Stored*>(array) + part.begin;
}

// The weight takes decay and update in one sum, and is rounded once.
template <typename W, typename Weight, typename Gradient>
void update(const Part& part) {
  const auto& constants = part.constants;
  const auto factor = static_cast<W>(constants.factor), gain1 = static_cast<W>(constants.gain1),
             gain2 = static_cast<W>(constants.gain2), beta2 = static_cast<W>(constants.beta2),
             inverse_root = static_cast<W>(constants.inverse_root),
             epsilon = static_cast<W>(constants.epsilon), size = static_cast<W>(constants.size),
             shrink = static_cast<W>(constants.shrink);
  const auto* __restrict gradient = elements<Gradient>(part.call->gradient, part);
  auto* __restrict master = elements<Plain<W>>(part.call->master, part);
  auto* __restrict exp_avg = elements<Plain<W>>(part.call->exp_avg, part);
  auto* __restrict exp_avg_sq = elements<Plain<W>>(part.call->exp_avg_sq, part);
  constexpr bool kSeparate = !std::is_same_v<Weight, Plain<W>>;
  auto* __restrict weights =
      elements<Weight>(kSeparate ? part.call->weights : part.call->master, part);
  const int64_t count = part.end - part.begin;
  for (int64_t i = 0; i < count; ++i) {
    const W g = Gradient::widen(gradient[i]) * factor;
    const W m = exp_avg[i] + gain1 * (g - exp_avg[i]);
    const W v = beta2 * exp_avg_sq[i] + gain2 * g * g;
    const W direction = m / (std::sqrt(v) * inverse_root + epsilon);
    const W w = master[i] - (shrink * master[i] + size * direction);
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    master[i] = w;
    if constexpr (kSeparate) weights[i] = Weight::narrow(w);
  }
}

template <typename Weight>
void update_by_gradient(const Part& part) {
  switch (part.call->gradient_type) {
    case DType::kBF16:
      return update<float, Weight, BFloat16>(part);
    case DType::kF16:
      return update<float, Weight, Half>(part);
    default:
      return update<float, Weight, Plain<float>>(part);
  }
}

void update_by_type(const Part& part) {
  switch (part.call->type) {
    case DType::kBF16:
      return update_by_gradient<BFloat16>(part);
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
}

}  // namespace

std::vector<InstructionSet> instruction_sets() {
  std::vector<InstructionSet> sets = {InstructionSet::kBaseline};
  if (has_avx2()) sets.push_back(InstructionSet::kAvx2);
  if (has_avx512()) sets.push_back(InstructionSet::kAvx512);
  return sets;
}

void adamw_on_cpu(std::span<const HostAdamW> calls, const HostAdamWOptions& options) {
  constexpr int64_t kPart = int64_t{1} << 17;  // 3.5 MiB of traffic
  std::vector<Part> parts;
  int64_t total = 0;
  for (const auto& call : calls) {
    check(call);
    total += call.count;
    const auto constants = constants_of(call);
    for (int64_t begin = 0; begin < call.count; begin += kPart) {
      parts.push_back({&call, constants, begin, std::min(begin + kPart, call.count)});
    }
  }
  const auto run = options.instructions == InstructionSet::kAvx512 ? update_avx512
                   : options.instructions == InstructionSet::kAvx2 ? update_avx2
                                                                   : update_baseline;
  // A thread that has less to do costs more than it brings.
  const auto threads = std::min<int64_t>(options.threads, (total + kPart - 1) / kPart);
  for_each_index(static_cast<int64_t>(parts.size()), static_cast<int>(threads),
                 [&](int64_t i) { run(parts[static_cast<size_t>(i)]); });
}

}  // namespace skein::ops
