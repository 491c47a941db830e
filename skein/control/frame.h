// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How does a message of the control store look on the wire?
//
//   length of body (u32) | body | HMAC-SHA256 over (sequence number u64, length, body)
//
// Integers are little-endian. A frame is at most 1 MiB with all its parts; the length is checked
// before anything is kept for it. The sequence number is not sent: each side counts, so that a
// frame which is repeated, left out or moved fails its MAC. Nothing here touches a socket.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace skein::control {

using FrameKey = std::array<unsigned char, 32>;

inline constexpr size_t kMaxFrame = size_t{1} << 20;
inline constexpr size_t kMacSize = 32;
inline constexpr size_t kMaxBody = kMaxFrame - sizeof(uint32_t) - kMacSize;
inline constexpr size_t kMaxStoreKey = 4096;
inline constexpr size_t kMaxStoreValue = kMaxBody - kMaxStoreKey - 64;

// Turns bodies into frames, in the order in which they must arrive.
class FrameSealer {
 public:
  explicit FrameSealer(const FrameKey& key) : key_(key) {}
  std::string seal(std::string_view body);

 private:
  FrameKey key_;
  uint64_t sequence_ = 0;
};

// Cuts a byte stream into bodies.
class FrameOpener {
 public:
  explicit FrameOpener(const FrameKey& key) : key_(key) {}
  void feed(std::string_view bytes) { buffer_.append(bytes); }
  // The next whole body, if there is one. Throws CommError on a frame that is too long or whose
  // MAC is wrong; the connection is of no use afterwards.
  std::optional<std::string> next();

 private:
  FrameKey key_;
  uint64_t sequence_ = 0;
  std::string buffer_;
};

// kJoin is a guest's one request: a launcher asks for its node's place.
enum class StoreOperation : uint8_t {
  kSet = 1,
  kTryGet = 2,
  kGet = 3,
  kAdd = 4,
  kErase = 5,
  kJoin = 6
};
enum class StoreStatus : uint8_t { kOk = 0, kAbsent = 1, kTimeout = 2, kTaken = 3 };

struct StoreRequest {
  StoreOperation operation = StoreOperation::kTryGet;
  int64_t number = 0;  // kAdd: the amount; kGet: milliseconds to wait
  std::string key;     // kJoin: what tells this launcher from all others
  std::string value;   // kSet; kJoin: who it is, for people
};

struct StoreResponse {
  StoreStatus status = StoreStatus::kOk;
  int64_t number = 0;  // kAdd: the sum; kJoin: of this admission
  std::string value;   // kJoin: the run's token, or who has the place
};

std::string encode(const StoreRequest& request);
std::string encode(const StoreResponse& response);
// Nothing for bytes that are not such a message.
std::optional<StoreRequest> decode_request(std::string_view body);
std::optional<StoreResponse> decode_response(std::string_view body);

}  // namespace skein::control
