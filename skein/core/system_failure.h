// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which failure of a system call says something about the file, and which may pass?
//
// A disk that does not answer is no damaged file: what is decided for good (skipped, abandoned,
// deleted) is decided after a file was read, or found to be absent.

#include <functional>
#include <string>

#include "skein/core/error.h"

namespace skein {

// What throw_errno() throws, unless the disk is full (DiskFull).
struct SystemFailure : IoError {
  SystemFailure(const std::string& text, int error) : IoError(text), code(error) {}

  int code;  // an errno
};

// ESTALE, EIO, ETIMEDOUT, EINTR, EAGAIN: a second attempt may find the file.
bool may_pass(int code);

// The path leads to no file: that is certain, and no other attempt would find one.
bool says_absent(int code);

// Calls `attempt` until it throws no failure that may pass; five times at most, within five
// seconds. It opens what it reads: a stale handle stays stale.
void try_again(const std::function<void()>& attempt);

}  // namespace skein
