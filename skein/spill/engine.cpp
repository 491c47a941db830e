// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/spill/engine.h"

#include <cstdlib>
#include <mutex>
#include <string_view>

#include "skein/core/log.h"

namespace skein::spill {
namespace {

bool is_turned_off() {
  const char* value = std::getenv("SKEIN_IO_URING");
  return value != nullptr && std::string_view(value) == "0";
}

void say_once(const std::string& refusal, unsigned threads) {
  static std::once_flag said;
  std::call_once(said, [&] {
    log_info("io_uring is not used ({}): {} threads read and write what lies on disk", refusal,
             threads);
  });
}

}  // namespace

ChosenEngine make_engine(int descriptor, const EngineOptions& options) {
  const unsigned threads = options.threads > 0 ? options.threads : options.depth;
  if (options.kind == EngineKind::kThreads) return {make_thread_engine(descriptor, threads), false};
  std::string refusal = "SKEIN_IO_URING=0";
  if (!is_turned_off()) {
    if (auto engine = make_uring_engine(descriptor, options.depth, refusal)) {
      return {std::move(engine), true};
    }
  }
  say_once(refusal, threads);
  return {make_thread_engine(descriptor, threads), false};
}

}  // namespace skein::spill
