// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// What launchers and ranks tell each other through the store. They have proved themselves, except
// in a run whose store is open and under torchrun's store.
#include "skein/board/board.h"
#include "skein/launch/watch/node_identity.h"
#include "skein/launch/watch/node_status.h"
#include "tests/fuzz/targets.h"

namespace skein::fuzz {
namespace {

// What was understood is understood the same way when it is passed on.
template <typename Message>
void check(const std::optional<Message>& message,
           std::optional<Message> (*decode)(const std::string&)) {
  if (!message) return;
  const auto text = encode(*message);
  const auto again = decode(text);
  require(again && encode(*again) == text, "an accepted message is read back");
}

}  // namespace

void messages(std::string_view bytes) {
  const std::string text(bytes);
  check(board::decode_board(text), board::decode_board);
  check(launch::decode_status(text), launch::decode_status);
  check(launch::decode_command(text), launch::decode_command);
  check(launch::decode_identity(text), launch::decode_identity);
}

}  // namespace skein::fuzz
