// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// See context.h: LibTorch includes this header and uses nothing of it.
