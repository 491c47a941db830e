// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/ranks/node_link.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "skein/control/socket.h"
#include "skein/control/wire.h"
#include "skein/core/host.h"
#include "skein/core/log.h"

namespace skein::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kRetry{200};
constexpr milliseconds kAnswer{
    1000};  // short, because the destructor waits for a request under way
constexpr milliseconds kFarewell{1000};
constexpr milliseconds kPause{1000};  // commands are asked for ten times a second
constexpr seconds kNameMissingEvery{10};

// The reason itself, without who did what before it.
std::string last_clause(const std::string& text) {
  const auto colon = text.rfind(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

}  // namespace

std::string make_run_token() {
  return fmt::format("{:016x}", control::get_integer<uint64_t>(control::make_nonce(), 0));
}

std::string status_key(int node) { return fmt::format("node/status/{}", node); }
std::string command_key(uint64_t serial) { return fmt::format("node/command/{}", serial); }

NodeLink::NodeLink(const NodeLinkOptions& options)
    : options_(options),
      id_(make_run_token()),
      started_(Clock::now()),
      named_(started_),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      heard_(started_),
      asked_(started_) {
  if (!wake_) throw_errno("cannot create an eventfd");
  teller_ = std::thread([this] { tell(); });
}

NodeLink::~NodeLink() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  teller_.join();  // first, because this thread starts the other
  if (listener_.joinable()) listener_.join();
}

bool NodeLink::wait(milliseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [this] { return ending_; });
  return !ending_;
}

void NodeLink::fail(ExitCode code, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!head_lost_) head_lost_ = HeadLost{.code = static_cast<int>(code), .why = why};
  eventfd_write(wake_.descriptor(), 1);
}

bool NodeLink::join() {
  while (true) {
    std::string why;
    try {
      why = try_to_join();
      if (why.empty()) return true;
    } catch (const CommError& error) {
      why = last_clause(error.what());
    } catch (const UserError& error) {
      fail(ExitCode::kUser, error.what());
    }
    if (give_up_joining(why) || !wait(kRetry)) return false;
  }
}

std::string NodeLink::try_to_join() {
  // First, so that a host that cannot be reached is told, rather than a secret that is missing.
  control::connect_to(options_.host, options_.port, Clock::now() + kAnswer);
  control::StoreAddress address{.host = options_.host,
                                .port = options_.port,
                                .role = control::Role::kNode,
                                .rank = static_cast<uint32_t>(options_.node),
                                .join_timeout = kAnswer,
                                .answer_timeout = kAnswer};
  const auto shared = options_.secret();
  const auto admission = control::ask_admission(shared, address, id_,
                                                fmt::format("{} (pid {})", host_name(), getpid()));
  if (!admission.holder.empty()) {
    if (!taken_since_) taken_since_ = Clock::now();
    return fmt::format("node {} has joined already, from {}: give each machine its own --node-rank",
                       options_.node, admission.holder);
  }
  taken_since_.reset();
  address.generation = admission.number;
  const auto secret = control::secret_of_run(shared, admission.token);
  auto store = std::make_unique<control::StoreClient>(secret, address);
  const auto newest = store->try_get(kNewestCommandKey).value_or("0");
  uint64_t number = 0;
  std::from_chars(newest.data(), newest.data() + newest.size(), number);
  serial_ = number + 1;
  const auto command = decode_command(store->try_get(command_key(number)).value_or(""));
  const std::lock_guard lock(mutex_);
  // What was ordered before was for the one who had the place, unless the run is over.
  if (command && command->order == Order::kQuit) command_ = *command;
  store_ = std::move(store);
  token_ = admission.token;
  secret_ = secret;
  heard_ = Clock::now();
  return "";
}

bool NodeLink::give_up_joining(const std::string& why) {
  const auto now = Clock::now();
  // Whoever has the place and is lost is missed by node 0 within that time.
  if (taken_since_ && now > *taken_since_ + options_.silence + kAnswer) fail(ExitCode::kUser, why);
  if (now > started_ + options_.join_timeout) {
    fail(ExitCode::kComm,
         fmt::format("node {} could not join node 0 at {} port {} within {} s: {}", options_.node,
                     options_.host, options_.port, options_.join_timeout / seconds(1), why));
  }
  if (now > named_ + kNameMissingEvery) {
    named_ = now;
    log_info("launch: waiting for node 0 at {} port {} ({} s of {} s): {}", options_.host,
             options_.port, (now - started_) / seconds(1), options_.join_timeout / seconds(1), why);
  }
  const std::lock_guard lock(mutex_);
  return head_lost_.has_value();
}

void NodeLink::tell() {
  if (!join()) return;
  listener_ = std::thread([this] { listen(); });
  eventfd_write(wake_.descriptor(), 1);  // the token is there
  while (true) {
    std::string status;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, options_.tell_every, [this] { return ending_ || untold_; });
      if (ending_) return;
      status = status_;
      untold_ = false;
    }
    if (status.empty()) continue;
    try {
      store_->set(status_key(options_.node), status);
      const std::lock_guard lock(mutex_);
      heard_ = Clock::now();
      told_ = !untold_;
      changed_.notify_all();
    } catch (const control::RefusedError& error) {
      return fail(ExitCode::kComm, error.what());  // another run, or another launcher of this node
    } catch (const CommError&) {
      if (!wait(kRetry)) return;
      const std::lock_guard lock(mutex_);
      untold_ = true;
    }
  }
}

void NodeLink::listen() {
  while (true) {
    const auto asked = Clock::now();
    try {
      const auto text = store_->get(command_key(serial_), options_.tell_every);
      ++serial_;
      const std::lock_guard lock(mutex_);
      command_ = decode_command(text).value_or(command_);
      heard_ = Clock::now();
      eventfd_write(wake_.descriptor(), 1);
    } catch (const CommError&) {
      // No command within that time, or the store is gone, which the other thread notices.
      if (Clock::now() < asked + options_.tell_every && !wait(kRetry)) return;
    }
    const std::lock_guard lock(mutex_);
    if (ending_) return;
  }
}

void NodeLink::report(const NodeStatus& status) {
  const auto text = encode(status);
  const std::lock_guard lock(mutex_);
  status_ = text;
  untold_ = true;
  told_ = false;
  changed_.notify_all();
}

NodeCommand NodeLink::command() {
  eventfd_t ignored = 0;
  eventfd_read(wake_.descriptor(), &ignored);
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  const auto gap = now - std::exchange(asked_, now);
  // While this process was stopped, or its machine paused, nobody could be heard.
  if (gap > kPause) heard_ = std::min(now, heard_ + gap);
  return command_;
}

std::optional<HeadLost> NodeLink::head_lost() const {
  const std::lock_guard lock(mutex_);
  if (head_lost_) return head_lost_;
  if (!store_ || Clock::now() < heard_ + options_.silence) return std::nullopt;
  return HeadLost{
      .code = static_cast<int>(ExitCode::kComm),
      .why = fmt::format("node {} ({}) has lost node 0 at {} port {}: no answer for {:.1f} s; its "
                         "launcher ended, or the network between is down",
                         options_.node, host_name(), options_.host, options_.port,
                         std::chrono::duration<double>(Clock::now() - heard_).count())};
}

std::optional<std::string> NodeLink::token() const {
  const std::lock_guard lock(mutex_);
  return token_.empty() ? std::nullopt : std::optional(token_);
}

control::Secret NodeLink::secret() const {
  const std::lock_guard lock(mutex_);
  return secret_;
}

void NodeLink::leave(const NodeStatus& status) {
  report(status);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kFarewell, [this] { return told_; });
}

}  // namespace skein::launch
