// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Writes protobuf messages, field by field, without a schema compiler.
//
// The caller knows the field numbers. Zero and empty values are written too: a reader takes them
// for the default, and inside a oneof they say which member is meant.

#include <cstdint>
#include <string>
#include <string_view>

namespace skein::report {

class WireMessage {
 public:
  WireMessage& integer(int field, int64_t value);  // int32, int64, bool, enum
  WireMessage& real(int field, double value);
  WireMessage& real32(int field, float value);
  WireMessage& text(int field, std::string_view value);  // string, bytes
  WireMessage& message(int field, const WireMessage& value);

  const std::string& bytes() const { return bytes_; }

 private:
  void tag(int field, int wire_type);
  void varint(uint64_t value);

  std::string bytes_;
};

// Fixed-width little-endian, as both log formats frame their records.
void append_little_endian(std::string& out, uint64_t value, int num_bytes);

}  // namespace skein::report
