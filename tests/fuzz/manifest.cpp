// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// A mutated text no longer has the digest that it states, so that it is also read with the right
// one put in: otherwise nothing behind that check would ever be reached.
#include "skein/checkpoint/files/manifest.h"

#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "tests/fuzz/targets.h"

namespace skein::fuzz {
namespace {

void read(std::string_view text) try {
  const auto manifest = checkpoint::parse_manifest(text, "manifest.json");
  require(checkpoint::manifest_text(manifest) == text, "one text per manifest");
} catch (const IoError&) {
}

}  // namespace

void manifest(std::string_view bytes) {
  read(bytes);
  const auto end = bytes.rfind("  \"digest\": ");
  if (end == std::string_view::npos) return;
  std::string text(bytes.substr(0, end));
  text += "  \"digest\": \"" + digest(text) + "\"\n}\n";
  read(text);
}

}  // namespace skein::fuzz
