// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/syntax/yaml_reader.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <sstream>

#include "skein/core/error.h"
#include "skein/core/json.h"

namespace skein::config {
namespace {

// Aliases may nest or refer to themselves: both limits are far above any real file.
constexpr int kMaxDepth = 32;
constexpr int64_t kMaxNodes = 100'000;

class Converter {
 public:
  Converter(std::string file, Origin::Kind kind) : file_(std::move(file)), kind_(kind) {}

  Node convert(const YAML::Node& source, const Origin& fallback, int depth) {
    Node node;
    node.origin = at(source, fallback);
    if (depth > kMaxDepth || ++nodes_ > kMaxNodes) {
      refuse(node.origin, "nested too deeply, or an alias that contains itself");
    }
    if (source.IsScalar()) {
      node.kind = Node::Kind::kScalar;
      node.text = without_zero_bytes(source.Scalar(), node.origin);
      node.quoted = source.Tag() == "!";
    } else if (source.IsSequence()) {
      node.kind = Node::Kind::kList;
      for (const auto& item : source) node.items.push_back(convert(item, node.origin, depth + 1));
    } else if (source.IsMap()) {
      convert_map(source, node, depth);
    }
    return node;
  }

 private:
  // Nulls have no mark of their own: they lie where their key does.
  Origin at(const YAML::Node& node, const Origin& fallback) const {
    const auto mark = node.Mark();
    if (mark.is_null() || node.IsNull()) return fallback;
    return Origin{.kind = kind_, .file = file_, .line = mark.line + 1, .column = mark.column + 1};
  }

  // The system takes a zero byte as the end of a name: it would open another file than we report.
  static std::string without_zero_bytes(std::string text, const Origin& origin) {
    if (text.find('\0') != std::string::npos) refuse(origin, "a zero byte in the text");
    return text;
  }

  void convert_map(const YAML::Node& source, Node& map, int depth) {
    map.kind = Node::Kind::kMap;
    std::vector<Node> merged;
    std::map<std::string, Origin> first;  // of each key
    for (const auto& pair : source) {
      const auto key_origin = at(pair.first, map.origin);
      if (!pair.first.IsScalar()) refuse(key_origin, "a key must be a plain word");
      const auto key = without_zero_bytes(pair.first.Scalar(), key_origin);
      auto value = convert(pair.second, key_origin, depth + 1);
      if (key == "<<" && kind_ == Origin::Kind::kFile) {
        collect_merged(std::move(value), merged);
      } else {
        const auto [place, is_new] = first.emplace(key, key_origin);
        if (!is_new) refuse_twice(key, key_origin, place->second);
        map.members.push_back({key, key_origin, std::move(value)});
      }
    }
    for (const auto& other : merged) {
      for (const auto& member : other.members) {
        if (first.emplace(member.key, member.key_origin).second) map.members.push_back(member);
      }
    }
  }

  static void collect_merged(Node value, std::vector<Node>& merged) {
    if (value.kind == Node::Kind::kList) {
      for (auto& item : value.items) collect_merged(std::move(item), merged);
    } else if (value.kind == Node::Kind::kMap) {
      merged.push_back(std::move(value));
    } else {
      refuse(value.origin, "'<<' merges maps only: write '<<: *anchor' of a map");
    }
  }

  [[noreturn]] static void refuse_twice(const std::string& key, const Origin& second,
                                        const Origin& first) {
    refuse(second, fmt::format("duplicate key '{}': first given at {}", key, first.place()));
  }

  std::string file_;
  Origin::Kind kind_;
  int64_t nodes_ = 0;
};

// Hears a document's events and keeps nothing of them.
class Listener final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

// Up to two. YAML::LoadAll() would find documents for ever in a text such as `, [`, where the
// parser never moves on.
int count_documents(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Listener listener;
  int count = 0;
  while (count < 2 && parser.HandleNextDocument(listener)) ++count;
  return count;
}

Node read_document(const std::string& text, const std::string& file, Origin::Kind kind) {
  const Origin start{.kind = kind, .file = file, .line = 1, .column = 1};
  try {
    const int documents = count_documents(text);
    if (documents == 0) return Node{.kind = Node::Kind::kMap, .origin = start};
    if (documents > 1) refuse(start, "more than one YAML document ('---') in one file");
    auto node = Converter(file, kind).convert(YAML::Load(text), start, 0);
    if (node.kind == Node::Kind::kNull) node.kind = Node::Kind::kMap;
    if (node.kind != Node::Kind::kMap) {
      refuse(node.origin, kind == Origin::Kind::kDeepSpeed ? "expected an object, {\"key\": value}"
                                                           : "expected 'key: value' lines");
    }
    return node;
  } catch (const YAML::Exception& error) {
    auto place = start;
    if (!error.mark.is_null())
      place.line = error.mark.line + 1, place.column = error.mark.column + 1;
    refuse(place, "not well-formed YAML: " + error.msg);
  }
}

void flatten_into(const Node& map, const std::string& prefix, std::vector<Setting>& settings) {
  for (const auto& [key, origin, value] : map.members) {
    const auto path = prefix.empty() ? key : prefix + "." + key;
    if (prefix.empty() && key.starts_with("x-")) continue;
    const bool is_section = value.kind == Node::Kind::kMap || value.kind == Node::Kind::kNull;
    if (path == "training" && is_section) {
      flatten_into(value, "", settings);
    } else if (value.kind == Node::Kind::kMap && path != "deepspeed" &&
               !path.ends_with("_pattern")) {
      if (value.members.empty() && !path.ends_with("_kwargs")) {
        refuse(origin, fmt::format("section '{}' is empty", path));
      }
      flatten_into(value, path, settings);
    } else {
      settings.push_back({path, value, origin});
    }
  }
}

std::string read_text(const fs::path& path, const Origin* named_by) {
  constexpr uint64_t kLimit = 16 << 20;
  std::error_code error;  // a name too long for the file system is a mistake like any other
  if (fs::is_regular_file(path, error)) return read_file(path, kLimit);
  const bool is_model = fs::is_regular_file(path / "config.json", error);
  const auto message = fmt::format(
      "configuration file '{}' {}{}", path.string(),
      fs::exists(path, error) ? "is not a regular file" : "does not exist",
      is_model ? fmt::format(": a model's folder is given as model_name_or_path={}", path.string())
               : "");
  if (named_by) refuse(*named_by, message);
  throw UserError(message);
}

// What people write that JSON does not have; `byte` (from 1) is where the parser stopped.
std::string cause_in_json(std::string_view text, size_t byte) {
  if (byte == 0 || byte > text.size()) return "";
  const char found = text[byte - 1];
  if (found == '/' || found == '#') return ": JSON has no comments";
  const auto before = text.substr(0, byte - 1).find_last_not_of(" \t\r\n");
  const bool closes = found == '}' || found == ']';
  if (closes && before != std::string_view::npos && text[before] == ',') {
    return fmt::format(": a comma before '{}'", found);
  }
  if (found == '\'') return ": strings stand in double quotes";
  return std::isgraph(static_cast<unsigned char>(found))
             ? fmt::format(": '{}' is not expected", found)
             : "";
}

using Layers = std::vector<std::vector<Setting>>;

// `chain` names the files between the first one and this one.
void read_chain(const std::string& text, const fs::path& path, std::vector<fs::path>& chain,
                Layers& layers) {
  chain.push_back(fs::weakly_canonical(path));
  auto root = read_yaml(text, path.string());
  const auto extends = std::find_if(root.members.begin(), root.members.end(),
                                    [](const auto& member) { return member.key == "extends"; });
  if (extends != root.members.end()) {
    const auto& name = extends->value;
    if (name.kind != Node::Kind::kScalar) refuse(name.origin, "'extends' takes one file name");
    const auto parent = path.parent_path() / name.text;
    const auto parent_text = read_text(parent, &name.origin);
    if (std::find(chain.begin(), chain.end(), fs::weakly_canonical(parent)) != chain.end()) {
      refuse(name.origin,
             fmt::format("'extends' goes in a circle: '{}' extends itself", parent.string()));
    }
    read_chain(parent_text, parent, chain, layers);
    root.members.erase(extends);
  }
  layers.push_back(flatten(root));
}

}  // namespace

Node read_yaml(const std::string& text, const std::string& file) {
  return read_document(text, file, Origin::Kind::kFile);
}

// JSON is YAML's flow style, so one converter serves both; the JSON parser only judges the syntax.
Node read_json(const std::string& text, const std::string& file) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    refuse({.kind = Origin::Kind::kDeepSpeed, .file = file, .line = 1, .column = 1},
           "the file is empty: {} asks for nothing");
  }
  try {
    JsonEvents nothing_kept;
    walk_json(text, {}, nothing_kept);
  } catch (const JsonError& error) {
    const auto [line, column] = place_of(text, error.byte);
    const Origin place{
        .kind = Origin::Kind::kDeepSpeed, .file = file, .line = line, .column = column};
    refuse(place, fmt::format("not well-formed JSON: {}{}", error.what(),
                              cause_in_json(text, error.byte)));
  }
  return read_document(text, file, Origin::Kind::kDeepSpeed);
}

std::vector<Setting> flatten(const Node& map) {
  std::vector<Setting> settings;
  flatten_into(map, "", settings);
  return settings;
}

Layers read_config_files(const fs::path& path) {
  return read_config_text(read_text(path, nullptr), path);
}

Layers read_config_text(const std::string& text, const fs::path& path) {
  std::vector<fs::path> chain;
  Layers layers;
  read_chain(text, path, chain, layers);
  return layers;
}

}  // namespace skein::config
