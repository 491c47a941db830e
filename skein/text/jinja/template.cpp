// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/jinja/template.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include "skein/core/foreign_text.h"
#include "skein/text/jinja/interpreter.h"
#include "skein/text/jinja/parser.h"

namespace skein::text::jinja {
namespace {

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    utf8proc_int32_t code = 0;
    const auto size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                       static_cast<utf8proc_ssize_t>(text.size()), &code);
    if (size <= 0) return false;
    text.remove_prefix(static_cast<size_t>(size));
  }
  return true;
}

}  // namespace

Template::Template(std::string_view source, std::string name) : name_(std::move(name)) {
  if (source.size() > kMaxBytes) {
    throw TemplateError(fmt::format("{}: a template of {} bytes, more than the {} that are read",
                                    name_, source.size(), kMaxBytes));
  }
  if (!is_utf8(source)) throw TemplateError(fmt::format("{}: invalid UTF-8", name_));
  try {
    syntax_ = std::make_shared<const TemplateSyntax>(parse_template(source));
  } catch (const SyntaxError& error) {
    throw TemplateError(fmt::format("{}:{}: {}", name_, error.line, shown(error.why)));
  }
}

bool Template::has_generation() const { return syntax_->has_generation; }

Rendered Template::render(const Dict& variables, const RenderOptions& options) const {
  Interpreter interpreter(*syntax_, options);
  try {
    return interpreter.run(variables);
  } catch (const Failure& failure) {
    throw TemplateError(fmt::format("{}:{}: {}", name_, interpreter.line(), shown(failure.what())));
  }
}

}  // namespace skein::text::jinja
