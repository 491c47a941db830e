// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/control/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "skein/core/error.h"

namespace skein::control {
namespace {

constexpr size_t kLongestSecretFile = 4096;

}  // namespace

Secret make_secret() {
  SKEIN_CHECK(sodium_init() >= 0, "libsodium does not start");
  Secret secret;
  randombytes_buf(secret.data(), secret.size());
  return secret;
}

Secret secret_of_run(const Secret& shared, std::string_view token) {
  const auto message = std::string("skein run\0", 10).append(token);
  Secret secret;
  crypto_auth_hmacsha256(secret.data(), reinterpret_cast<const unsigned char*>(message.data()),
                         message.size(), shared.data());
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

Secret read_secret_file(const fs::path& path) {
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info{};
  if (!file || fstat(file.descriptor(), &info) != 0) {
    throw UserError(fmt::format("cannot read the secret {}: {}", path.string(), strerror(errno)));
  }
  if (!S_ISREG(info.st_mode) || (info.st_mode & 077) != 0) {
    throw UserError(fmt::format("{} must be a file that its owner alone can read: chmod 600 {}",
                                path.string(), path.string()));
  }
  char bytes[kLongestSecretFile];
  auto size = read(file.descriptor(), bytes, sizeof bytes);
  while (size > 0 && std::isspace(static_cast<unsigned char>(bytes[size - 1])) != 0) --size;
  Secret secret;
  if (size < static_cast<ssize_t>(secret.size())) {
    throw UserError(
        fmt::format("{} holds fewer than {} bytes: `openssl rand -hex 32 > {}` makes a secret",
                    path.string(), secret.size(), path.string()));
  }
  crypto_hash_sha256(secret.data(), reinterpret_cast<const unsigned char*>(bytes),
                     static_cast<size_t>(size));
  return secret;
}

void write_secret_file(const fs::path& path) {
  const auto secret = make_secret();
  char digits[2 * secret.size() + 1];
  sodium_bin2hex(digits, sizeof digits, secret.data(), secret.size());
  // Never through write(2) into a file that others may have opened before: a new one, renamed.
  const auto temporary = temporary_beside(path);
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const File file(open(temporary.c_str(), flags, S_IRUSR | S_IWUSR));
  if (!file) throw_errno(fmt::format("cannot write {}", temporary.string()));
  try {
    file.write_at(0, std::as_bytes(std::span(digits, 2 * secret.size())));
    rename_path(temporary, path);
  } catch (const IoError&) {
    unlink(temporary.c_str());
    throw;
  }
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

}  // namespace skein::control
