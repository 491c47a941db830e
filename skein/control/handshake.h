// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How do a rank (or the launcher of another node) and the control store convince each other that
// they belong to the same run?
//
//   rank  -> store   hello: magic, role, rank, generation, the rank's nonce     (56 bytes)
//   store -> rank    challenge: the store's nonce, the store's proof or refusal (64 bytes)
//   rank  -> store   the rank's proof                                           (32 bytes)
//
// Proofs and the two frame keys are HMAC-SHA256 under the secret, over a label and both nonces
// with the whole hello: a recorded handshake answers no other challenge, and no proof can be
// reflected. A refusal is signed like a proof: who belongs to another start of the ranks learns it
// at once, and a stranger cannot tell one from the other. Sizes are fixed, so that a stranger is
// read to a bound. Nothing here touches a socket.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "skein/control/frame.h"
#include "skein/control/secret.h"

namespace skein::control {

inline constexpr size_t kNonceSize = 32;
inline constexpr size_t kHelloSize = 24 + kNonceSize;
inline constexpr size_t kProofSize = kMacSize;
inline constexpr size_t kChallengeSize = kNonceSize + kProofSize;

// A guest is a launcher that knows the machines' shared secret, but not yet which run it is.
enum class Role : uint32_t { kRank = 1, kNode = 2, kGuest = 3 };

struct Hello {
  Role role = Role::kRank;
  uint32_t rank = 0;  // or the node's number
  // Of a rank: which start of the ranks. Of a node: its admission. An older one is refused.
  uint64_t generation = 0;
};

std::string make_nonce();
std::string encode_hello(const Hello& hello, std::string_view nonce);
std::optional<Hello> decode_hello(std::string_view bytes);  // exactly kHelloSize bytes

// What both sides have seen once the challenge is out.
class Transcript {
 public:
  Transcript(const Secret& secret, std::string_view hello_bytes, std::string_view store_nonce);

  std::string store_proof() const { return derive("skein store proof"); }
  std::string refusal() const { return derive("skein refusal"); }
  std::string rank_proof() const { return derive("skein rank proof"); }
  FrameKey key_to_store() const { return derive_key("skein key to store"); }
  FrameKey key_to_rank() const { return derive_key("skein key to rank"); }

 private:
  std::string derive(std::string_view label) const;
  FrameKey derive_key(std::string_view label) const;

  Secret secret_;
  std::string seen_;
};

// In constant time.
bool same_proof(std::string_view left, std::string_view right);

}  // namespace skein::control
