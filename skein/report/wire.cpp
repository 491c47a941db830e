// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/wire.h"

#include <bit>

namespace skein::report {
namespace {

enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

}  // namespace

WireMessage& WireMessage::integer(int field, int64_t value) {
  tag(field, kVarint);
  varint(static_cast<uint64_t>(value));
  return *this;
}

WireMessage& WireMessage::real(int field, double value) {
  tag(field, kFixed64);
  append_little_endian(bytes_, std::bit_cast<uint64_t>(value), 8);
  return *this;
}

WireMessage& WireMessage::real32(int field, float value) {
  tag(field, kFixed32);
  append_little_endian(bytes_, std::bit_cast<uint32_t>(value), 4);
  return *this;
}

WireMessage& WireMessage::text(int field, std::string_view value) {
  tag(field, kBytes);
  varint(value.size());
  bytes_ += value;
  return *this;
}

WireMessage& WireMessage::message(int field, const WireMessage& value) {
  return text(field, value.bytes_);
}

void WireMessage::tag(int field, int wire_type) {
  varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type));
}

void WireMessage::varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
  bytes_ += static_cast<char>(value);
}

void append_little_endian(std::string& out, uint64_t value, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

}  // namespace skein::report
