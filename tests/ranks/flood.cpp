// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// flood ADDRESS PORT SECONDS: one core that does nothing but connect; prints its rate.
#include <arpa/inet.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "skein/control/testing.h"

int main(int argc, char** argv) {
  in_addr address{};
  if (argc != 4 || inet_pton(AF_INET, argv[1], &address) != 1) {
    std::fprintf(stderr, "usage: flood ADDRESS PORT SECONDS\n");
    return 2;
  }
  const double seconds = std::atof(argv[3]);
  std::atomic<bool> ended = false;
  std::thread clock([&] {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    ended = true;
  });
  const auto count = skein::control::flood(ntohl(address.s_addr), std::atoi(argv[2]), ended);
  clock.join();
  std::printf("%.0f connections a second, %.0f of them let in\n",
              static_cast<double>(count.tried) / seconds,
              static_cast<double>(count.connected) / seconds);
  return 0;
}
