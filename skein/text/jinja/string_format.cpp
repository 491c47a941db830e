// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/jinja/string_format.h"

#include <algorithm>
#include <cmath>

#include "skein/text/jinja/operations.h"

namespace skein::text::jinja {
namespace {

std::string percent_field(char kind, const Value& value) {
  if (kind == 's') return to_text(value);
  if (kind == 'r') return to_repr(value);
  if (kind != 'd' && kind != 'i') {
    throw Failure(fmt::format("'%{}' in a format is unknown; known are %s, %r, %d and %%", kind));
  }
  const auto number = value.number();
  if (!number || std::abs(*number) > 9e15) {
    if (const auto integer = value.integer()) return fmt::format("{}", *integer);
    throw Failure(fmt::format("'%{}' of {}", kind, value.type()));
  }
  return fmt::format("{}", static_cast<int64_t>(*number));
}

}  // namespace

std::string percent_format(std::string_view format, const Value& values, Meter& meter) {
  const auto* tuple = values.sequence();
  if (tuple && tuple->kind != Sequence::Kind::kTuple) tuple = nullptr;
  const size_t count = tuple ? tuple->items.size() : 1;
  size_t used = 0;
  std::string result;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      result += format[i];
      continue;
    }
    const char kind = ++i < format.size() ? format[i] : '\0';
    if (kind == '%') {
      result += '%';
      continue;
    }
    if (used == count) throw Failure("a format with more fields than values");
    const auto& value = tuple ? tuple->items[used] : values;
    ++used;
    meter.text(value.weight());
    result += percent_field(kind, value);
  }
  if (used < count && !values.dict()) throw Failure("a format with fewer fields than values");
  return result;
}

std::string brace_format(std::string_view format, Arguments& arguments, Meter& meter) {
  const auto values = arguments.rest();
  const auto named = arguments.named();
  const auto value_of = [&](std::string_view field, size_t place) -> const Value& {
    if (!field.empty() && std::ranges::all_of(field, [](char c) { return c >= '0' && c <= '9'; })) {
      place = field.size() > 6 ? values.size() : std::stoul(std::string(field));
    } else if (!field.empty()) {
      const auto found = std::ranges::find(named, field, &std::pair<std::string, Value>::first);
      if (found != named.end()) return found->second;
      throw Failure(
          fmt::format("format: the field '{{{}}}' has no value, or is of a form that is "
                      "unknown; known are {{}}, {{0}} and {{name}}",
                      field));
    }
    if (place >= values.size()) throw Failure("a format with more fields than values");
    return values[place];
  };
  std::string result;
  size_t place = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    const bool twice = format.substr(i + 1).starts_with(c);
    if ((c == '{' || c == '}') && twice) {
      result += c;
      ++i;
    } else if (c == '{') {
      const size_t end = format.find('}', i);
      if (end == std::string_view::npos) throw Failure("a format with a '{' that is not closed");
      const auto field = format.substr(i + 1, end - i - 1);
      result += text_of(value_of(field, field.empty() ? place++ : 0), meter);
      i = end;
    } else if (c == '}') {
      throw Failure("a format with a '}' that closes nothing");
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace skein::text::jinja
