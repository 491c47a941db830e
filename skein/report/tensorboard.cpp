// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <span>

#include "skein/core/host.h"
#include "skein/report/checksum.h"
#include "skein/report/host.h"

namespace skein::report {
namespace {

// Field numbers of TensorFlow's event.proto, summary.proto, tensor.proto and of TensorBoard's
// hparams plugin; names as there.
namespace event {
enum { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
}
namespace session_log {
enum { kStatus = 1 };
enum { kStart = 1 };
}  // namespace session_log
namespace value {
enum { kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9 };
}
namespace metadata {
enum { kPluginData = 1, kDataClass = 4 };
enum { kPluginName = 1, kContent = 2 };
enum { kTensorClass = 2 };
}  // namespace metadata
namespace tensor {
enum { kDtype = 1, kShape = 2, kStringValue = 8 };
enum { kString = 7 };
enum { kDim = 2, kDimSize = 1 };
}  // namespace tensor
namespace plugin {
enum { kVersion = 1, kExperiment = 2, kSessionStart = 3, kSessionEnd = 4 };
enum { kTimeCreated = 3, kHparamInfos = 4, kMetricInfos = 5 };
enum { kInfoName = 1, kInfoType = 4 };
enum { kTypeString = 1, kTypeBool = 2, kTypeNumber = 3 };
enum { kMetricName = 1, kMetricTag = 2 };
enum { kStartHparams = 1, kStartTime = 5 };
enum { kEndStatus = 1, kEndTime = 2 };
enum { kSuccess = 1 };
enum { kMapKey = 1, kMapValue = 2 };
enum { kNumber = 2, kText = 3, kBool = 4 };
}  // namespace plugin
constexpr int kSummaryValue = 1;

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

fs::path free_name(const fs::path& folder) {
  const auto start = fmt::format("events.out.tfevents.{:010}.{}.{}",
                                 static_cast<int64_t>(wall_time()), host_name(), getpid());
  int number = 0;
  while (file_exists(folder / fmt::format("{}.{}", start, number))) ++number;
  return folder / fmt::format("{}.{}", start, number);
}

WireMessage plugin_metadata(std::string_view plugin, const WireMessage& content) {
  return WireMessage()
      .message(
          metadata::kPluginData,
          WireMessage().text(metadata::kPluginName, plugin).message(metadata::kContent, content))
      .integer(metadata::kDataClass, metadata::kTensorClass);
}

WireMessage string_tensor(std::string_view text) {
  const auto shape =
      WireMessage().message(tensor::kDim, WireMessage().integer(tensor::kDimSize, 1));
  return WireMessage()
      .integer(tensor::kDtype, tensor::kString)
      .message(tensor::kShape, shape)
      .text(tensor::kStringValue, text);
}

// google.protobuf.Value, which is what the plugin stores.
struct ToProtobufValue {
  WireMessage operator()(bool v) const { return WireMessage().integer(plugin::kBool, v); }
  WireMessage operator()(double v) const { return WireMessage().real(plugin::kNumber, v); }
  WireMessage operator()(const std::string& v) const {
    return WireMessage().text(plugin::kText, v);
  }
};

struct TypeOf {
  int operator()(bool) const { return plugin::kTypeBool; }
  int operator()(double) const { return plugin::kTypeNumber; }
  int operator()(const std::string&) const { return plugin::kTypeString; }
};

WireMessage experiment(const Hparams& hparams, const std::vector<std::string>& metric_tags) {
  using namespace plugin;
  WireMessage out;
  out.real(plugin::kTimeCreated, wall_time());
  for (const auto& [name, value] : hparams) {
    out.message(plugin::kHparamInfos, WireMessage()
                                          .text(plugin::kInfoName, name)
                                          .integer(plugin::kInfoType, std::visit(TypeOf{}, value)));
  }
  for (const auto& tag : metric_tags) {
    out.message(
        plugin::kMetricInfos,
        WireMessage().message(plugin::kMetricName, WireMessage().text(plugin::kMetricTag, tag)));
  }
  return out;
}

WireMessage session_start(const Hparams& hparams) {
  using namespace plugin;
  WireMessage out;
  for (const auto& [name, value] : hparams) {
    out.message(plugin::kStartHparams,
                WireMessage()
                    .text(plugin::kMapKey, name)
                    .message(plugin::kMapValue, std::visit(ToProtobufValue{}, value)));
  }
  return out.real(plugin::kStartTime, wall_time());
}

WireMessage plugin_data(int field, const WireMessage& content) {
  return WireMessage().integer(plugin::kVersion, 0).message(field, content);
}

}  // namespace

EventFile::EventFile(const fs::path& folder, std::optional<int64_t> resume_step,
                     const Announce& announce) {
  const auto path = free_name(folder);
  announce({path});
  make_directories(folder);
  file_ = File::create(path);
  write_record(
      WireMessage().real(event::kWallTime, wall_time()).text(event::kFileVersion, "brain.Event:2"));
  if (!resume_step) return;
  write_event(*resume_step + 1, event::kSessionLog,
              WireMessage().integer(session_log::kStatus, session_log::kStart));
}

void EventFile::scalars(int64_t step, const Numbers& values) {
  WireMessage summary;
  for (const auto& [tag, number] : values) {
    summary.message(kSummaryValue, WireMessage()
                                       .text(value::kTag, tag)
                                       .real32(value::kSimpleValue, static_cast<float>(number)));
  }
  write_event(step, event::kSummary, summary);
}

void EventFile::text(int64_t step, std::string_view tag, std::string_view markdown) {
  const auto content = WireMessage()
                           .text(value::kTag, tag)
                           .message(value::kTensor, string_tensor(markdown))
                           .message(value::kMetadata, plugin_metadata("text", WireMessage()));
  write_event(step, event::kSummary, WireMessage().message(kSummaryValue, content));
}

void EventFile::start_hparams(const Hparams& hparams, const std::vector<std::string>& metric_tags) {
  hparams_value("_hparams_/experiment",
                plugin_data(plugin::kExperiment, experiment(hparams, metric_tags)));
  hparams_value("_hparams_/session_start_info",
                plugin_data(plugin::kSessionStart, session_start(hparams)));
}

void EventFile::end_hparams() {
  const auto end = WireMessage()
                       .integer(plugin::kEndStatus, plugin::kSuccess)
                       .real(plugin::kEndTime, wall_time());
  hparams_value("_hparams_/session_end_info", plugin_data(plugin::kSessionEnd, end));
}

// The plugin reads the metadata alone; it wants a tensor beside it, and takes an empty one.
void EventFile::hparams_value(std::string_view tag, const WireMessage& content) {
  const auto summary_value = WireMessage()
                                 .text(value::kTag, tag)
                                 .message(value::kTensor, string_tensor(""))
                                 .message(value::kMetadata, plugin_metadata("hparams", content));
  write_event(0, event::kSummary, WireMessage().message(kSummaryValue, summary_value));
}

void EventFile::write_event(int64_t step, int field, const WireMessage& content) {
  write_record(WireMessage()
                   .real(event::kWallTime, wall_time())
                   .integer(event::kStep, step)
                   .message(field, content));
}

void EventFile::write_record(const WireMessage& event) {
  std::string record;
  append_little_endian(record, event.bytes().size(), 8);
  append_little_endian(record, masked_crc32c(record), 4);
  record += event.bytes();
  append_little_endian(record, masked_crc32c(event.bytes()), 4);
  file_.write_at(size_, std::as_bytes(std::span(record)));
  size_ += record.size();
}

}  // namespace skein::report
