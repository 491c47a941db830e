// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// One function per parser of bytes from outside. It returns when the bytes are refused in the
// parser's own way or accepted with every promise kept; anything else ends the process.
//
// libFuzzer drives them in the preset `fuzz`; replay_test.cpp feeds them the tracked corpus in
// every other build.

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace skein::fuzz {

void safetensors(std::string_view bytes);
void manifest(std::string_view bytes);
void run_record(std::string_view bytes);
void config(std::string_view bytes);
void frames(std::string_view bytes);
void messages(std::string_view bytes);
void json(std::string_view bytes);
void jsonl(std::string_view bytes);
void rows(std::string_view bytes);
void tokenizer(std::string_view bytes);
void chat_template(std::string_view bytes);
void model_config(std::string_view bytes);
void adapter_config(std::string_view bytes);
void hostfile(std::string_view bytes);
void gradients(std::string_view bytes);
void rewards(std::string_view bytes);

// Unlike assert() in every build, and a crash to libFuzzer.
inline void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

}  // namespace skein::fuzz
