// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/process/inherited_bytes.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <span>

#include "skein/core/error.h"

namespace skein::launch {

File share_bytes(const std::string& bytes) {
  File file(memfd_create("skein-inherited", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) throw_errno("cannot create an anonymous file for the ranks");
  file.write_at(0, std::as_bytes(std::span(bytes)));
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  if (fcntl(file.descriptor(), F_ADD_SEALS, seals) != 0)
    throw_errno("cannot seal an anonymous file");
  return file;
}

std::string take_bytes(int descriptor) {
  const File file(descriptor);
  std::string bytes(file.size(), '\0');
  // At an offset of its own: the file's is shared with the other children.
  file.read_at(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace skein::launch
