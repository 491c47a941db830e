// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What text does a Jinja template give for some variables?
//
// The part of Jinja that chat templates use, set up as transformers sets up jinja2
// (docs/templates.md lists it): no files, no imports, no host objects, and a budget for each
// rendering. Const calls are thread-safe.

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "skein/core/error.h"
#include "skein/text/jinja/meter.h"
#include "skein/text/jinja/value.h"

namespace skein::text::jinja {

// "NAME:LINE: reason": the template is broken, needs what is unknown here, refused what it was
// given (raise_exception), or was too expensive.
struct TemplateError : UserError {
  using UserError::UserError;
};

// Bytes from `begin` to before `end`.
struct Span {
  size_t begin = 0;
  size_t end = 0;
};

struct Rendered {
  std::string text;
  std::vector<Span> generated;  // what {% generation %} blocks printed, in order
  uint64_t steps = 0;           // that it took
};

struct RenderOptions {
  Limits limits;
  std::optional<std::time_t> now;  // for strftime_now; the clock's without
};

struct TemplateSyntax;

class Template {
 public:
  static constexpr size_t kMaxBytes = size_t{1} << 20;

  // `name` begins messages. Throws TemplateError.
  Template(std::string_view source, std::string name);

  // Throws TemplateError.
  Rendered render(const Dict& variables, const RenderOptions& options = {}) const;

  bool has_generation() const;
  const std::string& name() const { return name_; }

 private:
  std::shared_ptr<const TemplateSyntax> syntax_;
  std::string name_;
};

}  // namespace skein::text::jinja
