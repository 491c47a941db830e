// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/convert/float_values.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "skein/core/error.h"

namespace skein::convert {
namespace {

constexpr uint32_t kSign = 0x80000000, kInfinity = 0x7f800000;

float from_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13;
  // The exponents begin 112 lower; so do numbers below the smallest normal one.
  const auto value = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
  const bool finite = (half & 0x7c00) != 0x7c00;
  return std::bit_cast<float>(sign | (finite ? value : kInfinity | magnitude));
}

uint16_t to_half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits & kSign) >> 16);
  const uint32_t magnitude = bits & ~kSign;
  uint32_t half = 0;
  if (magnitude > kInfinity) {
    half = 0x7e00;
  } else if (magnitude >= 0x477ff000) {  // 65520: halfway to what would be the next
    half = 0x7c00;
  } else if (magnitude < 0x38800000) {
    // Below 2^-14 the last place is 2^-24, as that of 0.5 is here.
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000;
  } else {
    half = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

float from_brain(uint16_t brain) {
  return std::bit_cast<float>(static_cast<uint32_t>(brain) << 16);
}

uint16_t to_brain(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & ~kSign) > kInfinity) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <typename Stored, typename Convert>
void read_each(std::span<const std::byte> bytes, std::span<float> values, Convert convert) {
  SKEIN_CHECK(bytes.size() == values.size() * sizeof(Stored), "bytes of values");
  for (size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof stored, sizeof stored);
    values[i] = convert(stored);
  }
}

template <typename Stored, typename Convert, typename IsInfinite>
uint64_t write_each(std::span<const float> values, std::span<std::byte> bytes, Convert convert,
                    IsInfinite is_infinite) {
  SKEIN_CHECK(bytes.size() == values.size() * sizeof(Stored), "bytes of values");
  uint64_t too_large = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const Stored stored = convert(values[i]);
    too_large += is_infinite(stored) && std::isfinite(values[i]) ? 1 : 0;
    std::memcpy(bytes.data() + i * sizeof stored, &stored, sizeof stored);
  }
  return too_large;
}

}  // namespace

bool has_float_values(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

void to_floats(DType dtype, std::span<const std::byte> bytes, std::span<float> values) {
  switch (dtype) {
    case DType::kF16:
      return read_each<uint16_t>(bytes, values, from_half);
    case DType::kBF16:
      return read_each<uint16_t>(bytes, values, from_brain);
    case DType::kF32:
      return read_each<float>(bytes, values, [](float value) { return value; });
    case DType::kF64:
      return read_each<double>(bytes, values,
                               [](double value) { return static_cast<float>(value); });
    default:
      SKEIN_CHECK(false, "a dtype without float values");
  }
}

uint64_t from_floats(std::span<const float> values, DType dtype, std::span<std::byte> bytes) {
  const auto never = [](auto) { return false; };
  switch (dtype) {
    case DType::kF16:
      return write_each<uint16_t>(values, bytes, to_half,
                                  [](uint16_t half) { return (half & 0x7fff) == 0x7c00; });
    case DType::kBF16:
      return write_each<uint16_t>(values, bytes, to_brain,
                                  [](uint16_t brain) { return (brain & 0x7fff) == 0x7f80; });
    case DType::kF32:
      return write_each<float>(values, bytes, [](float value) { return value; }, never);
    case DType::kF64:
      return write_each<double>(values, bytes, [](float value) { return double{value}; }, never);
    default:
      SKEIN_CHECK(false, "a dtype without float values");
  }
  return 0;
}

}  // namespace skein::convert
