// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/mman.h>
#include <unistd.h>

#include "skein/core/error.h"

namespace skein::launch {

Secret make_secret() {
  SKEIN_CHECK(sodium_init() >= 0, "libsodium does not start");
  Secret secret;
  randombytes_buf(secret.data(), secret.size());
  return secret;
}

File share_secret(const Secret& secret) {
  File file(memfd_create("skein-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) throw_errno("cannot create an anonymous file for the run's secret");
  file.write_at(0, std::as_bytes(std::span(secret)));
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  if (fcntl(file.descriptor(), F_ADD_SEALS, seals) != 0)
    throw_errno("cannot seal the run's secret");
  return file;
}

Secret take_secret(int descriptor) {
  const File file(descriptor);
  Secret secret;
  // The offset is shared with the other ranks, so that plain read() would race.
  const auto got = pread(descriptor, secret.data(), secret.size(), 0);
  if (got != static_cast<ssize_t>(secret.size())) {
    throw UserError(fmt::format(
        "SKEIN_SECRET_FD={} does not hold a run's secret: ranks are started by `skein train`",
        descriptor));
  }
  return secret;
}

}  // namespace skein::launch
