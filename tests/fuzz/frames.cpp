// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// The bytes come once as a stranger sends them, and once cut into bodies that a peer who knows the
// key has sealed: byte by byte, so that every cut of the stream is met.
#include "skein/control/frame.h"

#include <algorithm>

#include "skein/control/handshake.h"
#include "skein/control/wire.h"
#include "skein/core/error.h"
#include "tests/fuzz/targets.h"

namespace skein::fuzz {
namespace {

void decode(std::string_view body) {
  if (const auto request = control::decode_request(body)) {
    require(encode(*request) == body, "one text per request");
  }
  if (const auto response = control::decode_response(body)) {
    require(encode(*response) == body, "one text per response");
  }
  if (const auto hello = control::decode_hello(body)) {
    const auto nonce = body.substr(body.size() - control::kNonceSize);
    require(control::encode_hello(*hello, nonce) == body, "one text per hello");
  }
}

void open_all(std::string_view stream) try {
  control::FrameOpener opener(control::FrameKey{1});
  for (const char byte : stream) {
    opener.feed({&byte, 1});
    while (const auto body = opener.next()) decode(*body);
  }
} catch (const CommError&) {
}

}  // namespace

void frames(std::string_view bytes) {
  decode(bytes);
  open_all(bytes);
  control::FrameSealer sealer(control::FrameKey{1});
  std::string sealed;
  while (bytes.size() >= 2) {  // two bytes of length before each body
    const size_t length = control::get_integer<uint16_t>(bytes, 0);
    sealed += sealer.seal(bytes.substr(2, length));
    bytes.remove_prefix(std::min(bytes.size(), length + 2));
  }
  open_all(sealed);
}

}  // namespace skein::fuzz
