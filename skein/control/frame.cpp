// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/control/frame.h"

#include <fmt/format.h>
#include <sodium.h>

#include "skein/control/wire.h"
#include "skein/core/error.h"

namespace skein::control {
namespace {

using Mac = std::array<unsigned char, kMacSize>;
static_assert(kMacSize == crypto_auth_hmacsha256_BYTES);

Mac frame_mac(const FrameKey& key, uint64_t sequence, std::string_view length_and_body) {
  std::string counter;
  put_integer(counter, sequence);
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, key.data(), key.size());
  const auto update = [&](std::string_view bytes) {
    crypto_auth_hmacsha256_update(&state, reinterpret_cast<const unsigned char*>(bytes.data()),
                                  bytes.size());
  };
  update(counter);
  update(length_and_body);
  Mac mac;
  crypto_auth_hmacsha256_final(&state, mac.data());
  return mac;
}

constexpr size_t kLengthSize = sizeof(uint32_t);
constexpr size_t kRequestHead = 1 + 8 + 4;  // operation, number, length of the key
constexpr size_t kResponseHead = 1 + 8;     // status, number

}  // namespace

std::string FrameSealer::seal(std::string_view body) {
  SKEIN_CHECK(body.size() <= kMaxBody, fmt::format("a message of {} bytes", body.size()));
  std::string frame;
  frame.reserve(kLengthSize + body.size() + kMacSize);
  put_integer(frame, static_cast<uint32_t>(body.size()));
  frame.append(body);
  const auto mac = frame_mac(key_, sequence_++, frame);
  frame.append(reinterpret_cast<const char*>(mac.data()), mac.size());
  return frame;
}

std::optional<std::string> FrameOpener::next() {
  if (buffer_.size() < kLengthSize) return std::nullopt;
  const size_t length = get_integer<uint32_t>(buffer_, 0);
  if (length > kMaxBody) {
    throw CommError(fmt::format("a control frame of {} bytes; at most {}", length, kMaxBody));
  }
  const size_t whole = kLengthSize + length + kMacSize;
  if (buffer_.size() < whole) return std::nullopt;
  const auto mac =
      frame_mac(key_, sequence_, std::string_view(buffer_).substr(0, whole - kMacSize));
  if (sodium_memcmp(mac.data(), buffer_.data() + whole - kMacSize, kMacSize) != 0) {
    throw CommError(fmt::format("control frame {} has a wrong signature", sequence_));
  }
  ++sequence_;
  std::string body = buffer_.substr(kLengthSize, length);
  buffer_.erase(0, whole);
  return body;
}

std::string encode(const StoreRequest& request) {
  SKEIN_CHECK(request.key.size() <= kMaxStoreKey && request.value.size() <= kMaxStoreValue,
              fmt::format("store key of {} bytes, value of {} bytes", request.key.size(),
                          request.value.size()));
  std::string body;
  body.reserve(kRequestHead + request.key.size() + request.value.size());
  put_integer(body, static_cast<uint8_t>(request.operation));
  put_integer(body, request.number);
  put_integer(body, static_cast<uint32_t>(request.key.size()));
  return body.append(request.key).append(request.value);
}

std::string encode(const StoreResponse& response) {
  std::string body;
  put_integer(body, static_cast<uint8_t>(response.status));
  put_integer(body, response.number);
  return body.append(response.value);
}

std::optional<StoreRequest> decode_request(std::string_view body) {
  if (body.size() < kRequestHead) return std::nullopt;
  const auto operation = get_integer<uint8_t>(body, 0);
  const size_t key_size = get_integer<uint32_t>(body, 9);
  if (operation < 1 || operation > static_cast<uint8_t>(StoreOperation::kJoin)) return std::nullopt;
  if (key_size > kMaxStoreKey || key_size > body.size() - kRequestHead) return std::nullopt;
  const auto value = body.substr(kRequestHead + key_size);
  if (value.size() > kMaxStoreValue) return std::nullopt;
  return StoreRequest{.operation = static_cast<StoreOperation>(operation),
                      .number = get_integer<int64_t>(body, 1),
                      .key = std::string(body.substr(kRequestHead, key_size)),
                      .value = std::string(value)};
}

std::optional<StoreResponse> decode_response(std::string_view body) {
  if (body.size() < kResponseHead) return std::nullopt;
  const auto status = get_integer<uint8_t>(body, 0);
  if (status > static_cast<uint8_t>(StoreStatus::kTaken)) return std::nullopt;
  return StoreResponse{.status = static_cast<StoreStatus>(status),
                       .number = get_integer<int64_t>(body, 1),
                       .value = std::string(body.substr(kResponseHead))};
}

}  // namespace skein::control
