// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Does a JSON value fit a JSON Schema?
//
// The subset: true and false; type, enum, const; properties, required, additionalProperties; items,
// minItems, maxItems; minLength, maxLength, pattern; minimum, maximum, exclusiveMinimum,
// exclusiveMaximum; anyOf, oneOf, allOf, not. Annotations ($schema, $id, $comment, title,
// description, default, examples, format) say nothing. Any other word is refused: what is not
// looked at must not seem to be.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace skein::rewards {

class Schema {
 public:
  // `place` names it in messages. Throws UserError for what is outside of the subset.
  Schema(const nlohmann::json& schema, const std::string& place);
  Schema(Schema&&) noexcept;
  Schema& operator=(Schema&&) noexcept;
  ~Schema();

  bool accepts(const nlohmann::json& value) const;

 private:
  struct Node;
  std::unique_ptr<Node> root_;
};

}  // namespace skein::rewards
