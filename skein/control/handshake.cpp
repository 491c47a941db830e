// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/control/handshake.h"

#include <sodium.h>

#include "skein/control/wire.h"
#include "skein/core/error.h"

namespace skein::control {
namespace {

constexpr std::string_view kMagic = "skeinst1";

}  // namespace

std::string make_nonce() {
  SKEIN_CHECK(sodium_init() >= 0, "libsodium does not start");
  std::string nonce(kNonceSize, '\0');
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

std::string encode_hello(const Hello& hello, std::string_view nonce) {
  std::string bytes(kMagic);
  put_integer(bytes, static_cast<uint32_t>(hello.role));
  put_integer(bytes, hello.rank);
  put_integer(bytes, hello.generation);
  return bytes.append(nonce);
}

std::optional<Hello> decode_hello(std::string_view bytes) {
  if (bytes.size() != kHelloSize || !bytes.starts_with(kMagic)) return std::nullopt;
  const auto role = get_integer<uint32_t>(bytes, 8);
  if (role < static_cast<uint32_t>(Role::kRank) || role > static_cast<uint32_t>(Role::kGuest)) {
    return std::nullopt;
  }
  return Hello{.role = static_cast<Role>(role),
               .rank = get_integer<uint32_t>(bytes, 12),
               .generation = get_integer<uint64_t>(bytes, 16)};
}

Transcript::Transcript(const Secret& secret, std::string_view hello_bytes,
                       std::string_view store_nonce)
    : secret_(secret), seen_(std::string(hello_bytes).append(store_nonce)) {}

std::string Transcript::derive(std::string_view label) const {
  const auto key = derive_key(label);
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

FrameKey Transcript::derive_key(std::string_view label) const {
  // The hello has a fixed size, so that label and transcript cannot run into each other.
  const auto message = std::string(label) + '\0' + seen_;
  FrameKey key;
  crypto_auth_hmacsha256(key.data(), reinterpret_cast<const unsigned char*>(message.data()),
                         message.size(), secret_.data());
  return key;
}

bool same_proof(std::string_view left, std::string_view right) {
  return left.size() == right.size() && sodium_memcmp(left.data(), right.data(), left.size()) == 0;
}

}  // namespace skein::control
