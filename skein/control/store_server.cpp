// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/control/store_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "skein/control/frame.h"
#include "skein/control/handshake.h"
#include "skein/control/socket.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/core/store.h"

namespace skein::control {
namespace {

constexpr Deadline kNever = Deadline::max();
constexpr std::string_view kNodePrefix = "node/";
// Nobody waits longer than this in one request; keeps the sum of clock and wait in range.
constexpr int64_t kLongestWait = int64_t{1000} * 3600 * 24 * 30;
// So many strangers are let in within that time, 32,000 a second: each of 512 has 16 ms to say
// hello in any flood, and the port's queue of 4096 is passed in 130.
constexpr int kAcceptsAtOnce = 64;
constexpr std::chrono::milliseconds kAcceptTime{2};
// How long a place that was given waits for its node's first connection.
constexpr std::chrono::seconds kTimeToConnect{5};

struct ParkedGet {
  std::string key;
  Deadline deadline;
};

struct Channel {
  FrameOpener opener;
  FrameSealer sealer;
};

struct Peer {
  File socket;
  Clock::time_point accepted;
  std::string hello;                     // as far as it has come
  Hello claim{};                         // what it says, once that is whole
  std::optional<Transcript> transcript;  // the challenge is out
  std::string proof;                     // as far as it has come
  std::unique_ptr<Channel> channel;      // proved
  std::optional<ParkedGet> parked;       // one request at a time: nothing is read meanwhile
  std::string output;
  bool closed = false;
};

// Who may be a node.
struct Place {
  uint64_t admission = 0;
  std::string id;  // of the launcher that was admitted last; empty: none, or it was expelled
  std::string holder;
  Time awaited_until;  // before its first connection
};

// A peer is not read from while answers to it wait, so that it cannot pile up more of them.
short wanted_events(const Peer& peer) {
  const int reading = peer.parked ? POLLRDHUP : POLLIN;
  return static_cast<short>(peer.output.empty() ? reading : POLLOUT);
}

}  // namespace

class StoreServer::Loop {
 public:
  Loop(const Secret& secret, const StoreServerOptions& options)
      : secret_(secret),
        options_(options),
        listener_(listen_on(options.host, options.port)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        port_(local_port(listener_)) {
    if (!wake_) throw_errno("cannot create an eventfd");
    thread_ = std::thread([this] { run(); });
  }

  ~Loop() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    eventfd_write(wake_.descriptor(), 1);
    thread_.join();
  }

  int port() const { return port_; }
  // Runs `task` on the loop's thread and waits for it.
  void run_there(const std::function<void()>& task);
  void set(const std::string& key, const std::string& value);
  void begin_generation(uint64_t generation, uint32_t size);
  void expel_node(uint32_t node, uint64_t admission);

 private:
  void run();
  int wait_for_events(std::vector<pollfd>& entries);
  void promote_proved();
  void accept_some();
  void make_room();
  void name_missing_descriptors();
  void serve(Peer& peer, short events);
  void receive(Peer& peer);
  void take_handshake(Peer& peer);
  void send_challenge(Peer& peer);
  void take_requests(Peer& peer);
  void apply(Peer& peer, const StoreRequest& request);
  void admit(Peer& guest, const StoreRequest& request);
  bool is_connected(uint32_t node) const;
  void answer(Peer& peer, const StoreResponse& response);
  void wake_parked(const std::string& key);
  void flush(Peer& peer);
  Deadline deadline_of(const Peer& peer) const;
  void expire(Deadline now);
  void remove_closed();
  void run_tasks();
  bool may_join(const Hello& hello) const;
  MemoryStore& values_for(const Peer& peer, const std::string& key);

  const Secret secret_;
  StoreServerOptions options_;
  File listener_;
  File wake_;
  int port_;
  std::optional<MemoryStore> values_{std::in_place};  // of the ranks of this generation
  MemoryStore node_values_;
  std::list<Peer> peers_;             // that have proved themselves
  std::list<Peer> strangers_;         // in order of arrival
  Time accept_after_{};               // no stranger is let in before
  Time accept_since_{};               // since then
  int accepted_ = 0;                  // so many were
  std::map<uint32_t, Place> places_;  // by node
  bool named_descriptors_ = false;
  std::mutex mutex_;  // of the two below
  std::vector<std::packaged_task<void()>> tasks_;
  bool ending_ = false;
  std::thread thread_;
};

void StoreServer::Loop::run() {
  std::vector<pollfd> entries;
  while (true) {
    if (wait_for_events(entries) < 0 && errno != EINTR) return;
    if (entries[0].revents != 0) {
      run_tasks();
      const std::lock_guard lock(mutex_);
      if (ending_) return;
    }
    size_t index = 2;
    for (auto& peer : peers_) serve(peer, entries[index++].revents);
    for (auto& stranger : strangers_) serve(stranger, entries[index++].revents);
    promote_proved();
    if (entries[1].revents != 0) accept_some();
    expire(Clock::now());
    remove_closed();
  }
}

int StoreServer::Loop::wait_for_events(std::vector<pollfd>& entries) {
  const auto now = Clock::now();
  const bool may_accept = now >= accept_after_;
  // poll() passes over a descriptor of -1.
  entries.assign(
      {{wake_.descriptor(), POLLIN, 0}, {may_accept ? listener_.descriptor() : -1, POLLIN, 0}});
  Deadline next = may_accept ? kNever : accept_after_;
  for (const auto* list : {&peers_, &strangers_}) {
    for (const auto& peer : *list) {
      entries.push_back({peer.socket.descriptor(), wanted_events(peer), 0});
      next = std::min(next, deadline_of(peer));
    }
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
  const int wait = next == kNever ? -1 : static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
  return poll(entries.data(), entries.size(), wait);
}

void StoreServer::Loop::run_there(const std::function<void()>& task) {
  std::packaged_task<void()> work(task);
  auto done = work.get_future();
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(work));
  }
  eventfd_write(wake_.descriptor(), 1);
  done.get();
}

void StoreServer::Loop::run_tasks() {
  eventfd_t ignored = 0;
  eventfd_read(wake_.descriptor(), &ignored);
  std::vector<std::packaged_task<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (auto& task : tasks) task();
}

void StoreServer::Loop::set(const std::string& key, const std::string& value) {
  (key.starts_with(kNodePrefix) ? node_values_ : *values_).set(key, value);
  wake_parked(key);
}

void StoreServer::Loop::begin_generation(uint64_t generation, uint32_t size) {
  options_.generation = generation;
  options_.size = size;
  for (auto* list : {&peers_, &strangers_}) {
    for (auto& peer : *list) {
      if (peer.transcript && !may_join(peer.claim)) peer.closed = true;
    }
  }
  values_.emplace();
}

void StoreServer::Loop::expel_node(uint32_t node, uint64_t admission) {
  auto& place = places_[node];
  if (place.admission != admission) return;
  place = Place{.admission = admission};
  for (auto& peer : peers_) {
    if (peer.claim.role == Role::kNode && peer.claim.rank == node) peer.closed = true;
  }
}

void StoreServer::Loop::remove_closed() {
  std::vector<uint32_t> nodes;
  for (const auto& peer : peers_) {
    if (peer.closed && peer.channel && peer.claim.role == Role::kNode) {
      nodes.push_back(peer.claim.rank);
    }
  }
  for (auto* list : {&peers_, &strangers_}) {
    list->remove_if([](const Peer& peer) { return peer.closed; });
  }
  if (!options_.on_node_closed) return;
  for (const auto node : nodes) {
    if (!is_connected(node)) options_.on_node_closed(static_cast<int>(node));
  }
}

bool StoreServer::Loop::is_connected(uint32_t node) const {
  return std::any_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
    return !peer.closed && peer.claim.role == Role::kNode && peer.claim.rank == node;
  });
}

bool StoreServer::Loop::may_join(const Hello& hello) const {
  if (hello.role == Role::kGuest) return hello.rank < options_.nodes;
  if (hello.role == Role::kNode) {
    const auto place = places_.find(hello.rank);
    return place != places_.end() && !place->second.id.empty() &&
           place->second.admission == hello.generation;
  }
  return hello.rank < options_.size && hello.generation == options_.generation;
}

// Throws CommError, which closes the connection, when a rank asks for what is not its own.
MemoryStore& StoreServer::Loop::values_for(const Peer& peer, const std::string& key) {
  if (!key.starts_with(kNodePrefix)) return *values_;
  if (peer.claim.role != Role::kNode) throw CommError("a rank asks for a launcher's key");
  return node_values_;
}

void StoreServer::Loop::promote_proved() {
  for (auto next = strangers_.begin(); next != strangers_.end();) {
    const auto stranger = next++;
    if (!stranger->channel) continue;
    if (stranger->claim.role == Role::kNode) places_[stranger->claim.rank].awaited_until = {};
    peers_.splice(peers_.end(), strangers_, stranger);
  }
}

void StoreServer::Loop::accept_some() {
  const auto now = Clock::now();
  if (now >= accept_since_ + kAcceptTime) {
    accept_since_ = now;
    accepted_ = 0;
  }
  accept_after_ = accept_since_ + kAcceptTime;
  for (; accepted_ < kAcceptsAtOnce; ++accepted_) {
    auto socket = accept_one(listener_);
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE) {
        name_missing_descriptors();
      } else {
        accept_after_ = {};  // none waits
      }
      return;
    }
    make_room();
    strangers_.push_back(Peer{.socket = std::move(socket), .accepted = now});
  }
}

void StoreServer::Loop::make_room() {
  if (strangers_.size() < options_.max_strangers) return;
  const auto silent = std::find_if(strangers_.begin(), strangers_.end(),
                                   [](const Peer& stranger) { return !stranger.transcript; });
  strangers_.erase(silent != strangers_.end() ? silent : strangers_.begin());
}

void StoreServer::Loop::name_missing_descriptors() {
  if (std::exchange(named_descriptors_, true)) return;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto ours = peers_.size() + strangers_.size();
  const auto others = limit.rlim_cur - std::min<uint64_t>(limit.rlim_cur, ours);
  // A rank holds a connection for each of its threads that asks for something at the same time.
  const auto needed =
      uint64_t{4} * (options_.size + options_.nodes) + options_.max_strangers + others;
  log_warning(
      "launch: {} open files are all that this process may have, and {} ranks need {} to join: "
      "those that are left over wait (`ulimit -Hn` and systemd's LimitNOFILE are the hard limit)",
      limit.rlim_cur, options_.size, needed);
}

void StoreServer::Loop::serve(Peer& peer, short events) {
  if (events == 0 || peer.closed) return;
  if ((events & POLLOUT) != 0) flush(peer);
  if ((events & (POLLRDHUP | POLLERR | POLLNVAL)) != 0 ||
      (peer.parked && (events & POLLHUP) != 0)) {
    peer.closed = true;
  } else if ((events & (POLLIN | POLLHUP)) != 0) {
    receive(peer);
  }
}

void StoreServer::Loop::receive(Peer& peer) try {
  char buffer[64 * 1024];
  size_t most = sizeof buffer;
  if (!peer.transcript) {
    most = kHelloSize - peer.hello.size();
  } else if (!peer.channel) {
    most = kProofSize - peer.proof.size();
  }
  const auto got = recv(peer.socket.descriptor(), buffer, most, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    peer.closed = true;
    return;
  }
  const std::string_view bytes(buffer, static_cast<size_t>(got));
  if (peer.channel) {
    peer.channel->opener.feed(bytes);
    take_requests(peer);
  } else {
    (peer.transcript ? peer.proof : peer.hello).append(bytes);
    take_handshake(peer);
  }
} catch (const CommError&) {
  peer.closed = true;  // a forged, repeated or oversized frame: no effect, no answer
}

void StoreServer::Loop::take_handshake(Peer& peer) {
  if (!peer.transcript) {
    if (peer.hello.size() == kHelloSize) send_challenge(peer);
    return;
  }
  if (peer.proof.size() < kProofSize) return;
  if (!same_proof(peer.proof, peer.transcript->rank_proof())) {
    peer.closed = true;
    return;
  }
  peer.channel =
      std::make_unique<Channel>(Channel{.opener = FrameOpener(peer.transcript->key_to_store()),
                                        .sealer = FrameSealer(peer.transcript->key_to_rank())});
}

void StoreServer::Loop::send_challenge(Peer& peer) {
  const auto hello = decode_hello(peer.hello);
  if (!hello) {
    peer.closed = true;
    return;
  }
  peer.claim = *hello;
  const bool welcome = may_join(*hello);
  const auto nonce = make_nonce();
  peer.transcript.emplace(hello->role == Role::kGuest ? options_.guest_secret : secret_, peer.hello,
                          nonce);
  peer.output = nonce + (welcome ? peer.transcript->store_proof() : peer.transcript->refusal());
  flush(peer);
  if (!welcome) peer.closed = true;  // the few bytes have found room in the socket
}

void StoreServer::Loop::take_requests(Peer& peer) {
  while (!peer.parked && !peer.closed) {
    const auto body = peer.channel->opener.next();
    if (!body) return;
    const auto request = decode_request(*body);
    if (!request) throw CommError("a control message that is none");
    apply(peer, *request);
  }
}

void StoreServer::Loop::apply(Peer& peer, const StoreRequest& request) {
  if (peer.claim.role == Role::kGuest) return admit(peer, request);
  StoreResponse response;
  auto& values = values_for(peer, request.key);
  switch (request.operation) {
    case StoreOperation::kSet:
      values.set(request.key, request.value);
      break;
    case StoreOperation::kAdd:
      response.number = values.add(request.key, request.number);
      break;
    case StoreOperation::kErase:
      if (!values.erase(request.key)) response.status = StoreStatus::kAbsent;
      break;
    case StoreOperation::kTryGet:
    case StoreOperation::kGet:
      if (auto value = values.try_get(request.key)) {
        response.value = std::move(*value);
      } else if (request.operation == StoreOperation::kTryGet) {
        response.status = StoreStatus::kAbsent;
      } else {
        const std::chrono::milliseconds wait(std::clamp<int64_t>(request.number, 0, kLongestWait));
        peer.parked = ParkedGet{.key = request.key, .deadline = Clock::now() + wait};
        return;
      }
      break;
    case StoreOperation::kJoin:
      throw CommError("only a guest joins");
  }
  answer(peer, response);
  const bool changed =
      request.operation == StoreOperation::kSet || request.operation == StoreOperation::kAdd;
  if (changed) wake_parked(request.key);
  const bool from_node =
      request.operation == StoreOperation::kSet && peer.claim.role == Role::kNode;
  if (from_node && options_.on_node_set) {
    options_.on_node_set(static_cast<int>(peer.claim.rank), request.key, request.value);
  }
}

void StoreServer::Loop::admit(Peer& guest, const StoreRequest& request) {
  if (request.operation != StoreOperation::kJoin || request.key.empty()) {
    throw CommError("a guest does nothing but join");
  }
  const auto node = guest.claim.rank;
  auto& place = places_[node];
  if (place.id != request.key) {
    if (Clock::now() < place.awaited_until || is_connected(node)) {
      return answer(guest, {.status = StoreStatus::kTaken, .value = place.holder});
    }
    place = Place{.admission = place.admission + 1,
                  .id = request.key,
                  .holder = request.value,
                  .awaited_until = Clock::now() + kTimeToConnect};
    if (options_.on_node_admitted)
      options_.on_node_admitted(static_cast<int>(node), place.admission);
  }
  answer(guest, {.number = static_cast<int64_t>(place.admission), .value = options_.token});
}

void StoreServer::Loop::answer(Peer& peer, const StoreResponse& response) {
  peer.output += peer.channel->sealer.seal(encode(response));
  flush(peer);
}

void StoreServer::Loop::wake_parked(const std::string& key) {
  for (auto& peer : peers_) {
    if (!peer.parked || peer.parked->key != key || peer.closed) continue;
    peer.parked.reset();
    answer(peer, StoreResponse{.value = values_for(peer, key).try_get(key).value_or("")});
  }
}

void StoreServer::Loop::flush(Peer& peer) {
  const auto sent =
      send(peer.socket.descriptor(), peer.output.data(), peer.output.size(), MSG_NOSIGNAL);
  if (sent >= 0) {
    peer.output.erase(0, static_cast<size_t>(sent));
  } else if (errno != EAGAIN && errno != EINTR) {
    peer.closed = true;
  }
}

Deadline StoreServer::Loop::deadline_of(const Peer& peer) const {
  if (peer.parked) return peer.parked->deadline;
  return peer.channel ? kNever : peer.accepted + options_.handshake_timeout;
}

void StoreServer::Loop::expire(Deadline now) {
  for (auto& peer : peers_) {
    if (peer.closed || !peer.parked || deadline_of(peer) > now) continue;
    peer.parked.reset();
    answer(peer, StoreResponse{.status = StoreStatus::kTimeout});
  }
  for (auto& stranger : strangers_) {
    if (deadline_of(stranger) <= now) stranger.closed = true;
  }
}

StoreServer::StoreServer(const Secret& secret, const StoreServerOptions& options)
    : loop_(std::make_unique<Loop>(secret, options)) {}
StoreServer::~StoreServer() = default;
int StoreServer::port() const { return loop_->port(); }
void StoreServer::set(const std::string& key, const std::string& value) {
  loop_->run_there([&] { loop_->set(key, value); });
}
void StoreServer::begin_generation(uint64_t generation, uint32_t size) {
  loop_->run_there([&] { loop_->begin_generation(generation, size); });
}
void StoreServer::expel_node(int node, uint64_t admission) {
  loop_->run_there([&] { loop_->expel_node(static_cast<uint32_t>(node), admission); });
}

}  // namespace skein::control
