// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/control/store_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "skein/control/socket.h"
#include "skein/core/error.h"
#include "skein/core/log.h"

namespace skein::control {
namespace {

using std::chrono::milliseconds;

// The first attempt to connect has so much time, the second twice as much, and so on: where the
// port's queue is full, another attempt is a better chance than a longer one. Once connected, those
// who are before us are waited for.
constexpr milliseconds kFirstAttempt{100};
constexpr milliseconds kLongestAttempt{1000};
constexpr int kTurnsInQueue = 20;
constexpr std::chrono::seconds kSilence{10};  // then it is said that a store cannot be joined
constexpr size_t kReadSize = size_t{64} << 10;
// Keeps the sum of clock and wait in range.
constexpr Store::Duration kLongestWait = std::chrono::hours(24 * 30);

std::string name_of(const StoreAddress& address) {
  return fmt::format("{} {}", address.role == Role::kRank ? "rank" : "node", address.rank);
}

// Somewhere in it, so that those who were turned away together do not come back together.
milliseconds random_part_of(milliseconds time) {
  std::random_device random;
  return milliseconds(random() % static_cast<unsigned>(time.count()));
}

}  // namespace

class StoreClient::Connection {
 public:
  struct Opened;
  // Tries again until the time is over: in a crowd the store may have no place yet, and among
  // strangers it may have closed us for one of them. The answer to `first` shows that the store has
  // accepted our proof.
  static Opened open(const Secret& secret, const StoreAddress& address, Duration patience,
                     const StoreRequest& first = {.operation = StoreOperation::kTryGet});
  StoreResponse call(const StoreRequest& request, Deadline deadline);

 private:
  Connection(File socket, const Transcript& transcript)
      : socket_(std::move(socket)),
        sealer_(transcript.key_to_store()),
        opener_(transcript.key_to_rank()) {}
  static std::unique_ptr<Connection> prove(File socket, const Secret& secret,
                                           const StoreAddress& address, Deadline deadline);

  File socket_;
  FrameSealer sealer_;
  FrameOpener opener_;
};

struct StoreClient::Connection::Opened {
  std::unique_ptr<Connection> connection;
  StoreResponse answer;
};

std::unique_ptr<StoreClient::Connection> StoreClient::Connection::prove(File socket,
                                                                        const Secret& secret,
                                                                        const StoreAddress& address,
                                                                        Deadline deadline) {
  const auto hello = encode_hello(
      {.role = address.role, .rank = address.rank, .generation = address.generation}, make_nonce());
  send_all(socket, hello, deadline);
  const auto challenge = receive_exactly(socket, kChallengeSize, deadline);
  const Transcript transcript(secret, hello, challenge.substr(0, kNonceSize));
  const auto proof = challenge.substr(kNonceSize);
  if (same_proof(proof, transcript.refusal())) {
    throw RefusedError("another start of the run has taken its place");
  }
  if (!same_proof(proof, transcript.store_proof())) {
    throw RefusedError("it does not know this run's secret");
  }
  send_all(socket, transcript.rank_proof(), deadline);
  return std::unique_ptr<Connection>(new Connection(std::move(socket), transcript));
}

StoreClient::Connection::Opened StoreClient::Connection::open(const Secret& secret,
                                                              const StoreAddress& address,
                                                              Duration patience,
                                                              const StoreRequest& first) {
  const auto begin = Clock::now(), deadline = begin + std::min(patience, kLongestWait);
  bool told = false;
  const auto explain = [&](const CommError& error) {
    return fmt::format("{} cannot join the control store at {} port {}: {}", name_of(address),
                       address.host, address.port, error.what());
  };
  for (auto most = kFirstAttempt;; most = std::min(2 * most, kLongestAttempt)) {
    try {
      auto socket = connect_to(address.host, address.port, std::min(deadline, Clock::now() + most));
      const auto end = std::min(deadline, Clock::now() + kTurnsInQueue * most);
      auto connection = prove(std::move(socket), secret, address, end);
      auto answer = connection->call(first, end);
      return {std::move(connection), std::move(answer)};
    } catch (const RefusedError& error) {
      throw RefusedError(explain(error));
    } catch (const CommError& error) {
      const auto pause = random_part_of(most);
      if (Clock::now() + pause >= deadline) throw CommError(explain(error));
      if (!told && Clock::now() > begin + kSilence) {
        told = true;
        log_warning("{}; it is tried for {:.0f} s more", explain(error),
                    std::chrono::duration<double>(deadline - Clock::now()).count());
      }
      std::this_thread::sleep_for(pause);
    }
  }
}

StoreResponse StoreClient::Connection::call(const StoreRequest& request, Deadline deadline) {
  send_all(socket_, sealer_.seal(encode(request)), deadline);
  while (true) {
    if (const auto body = opener_.next()) {
      if (auto response = decode_response(*body)) return std::move(*response);
      throw CommError("the control store sent a message that is none");
    }
    const auto bytes = receive_some(socket_, kReadSize, deadline);
    if (bytes.empty()) throw CommError("the control store closed the connection");
    opener_.feed(bytes);
  }
}

StoreClient::StoreClient(const Secret& secret, const StoreAddress& address)
    : secret_(secret), address_(address) {
  idle_.push_back(Connection::open(secret_, address_, address_.join_timeout).connection);
}

StoreClient::~StoreClient() = default;

std::unique_ptr<StoreClient::Connection> StoreClient::take_connection() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
  }
  return Connection::open(secret_, address_, address_.answer_timeout).connection;
}

StoreResponse StoreClient::call(const StoreRequest& request, Duration wait) {
  auto connection = take_connection();
  try {
    auto response = connection->call(
        request, Clock::now() + std::min(wait, kLongestWait) + address_.answer_timeout);
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(connection));
    return response;
  } catch (const CommError& error) {
    // The connection is dropped: what is left in it belongs to a call that has ended.
    throw CommError(fmt::format("{}, key '{}': {} (control store at {} port {})", name_of(address_),
                                request.key, error.what(), address_.host, address_.port));
  }
}

Admission ask_admission(const Secret& shared, const StoreAddress& address, const std::string& id,
                        const std::string& name) {
  auto guest = address;
  guest.role = Role::kGuest;
  const auto [connection, answer] =
      StoreClient::Connection::open(shared, guest, address.join_timeout,
                                    {.operation = StoreOperation::kJoin, .key = id, .value = name});
  if (answer.status == StoreStatus::kTaken) return {.holder = answer.value};
  return {.token = answer.value, .number = static_cast<uint64_t>(answer.number), .holder = {}};
}

void StoreClient::set(const std::string& key, const std::string& value) {
  call({.operation = StoreOperation::kSet, .key = key, .value = value});
}

std::optional<std::string> StoreClient::try_get(const std::string& key) {
  auto response = call({.operation = StoreOperation::kTryGet, .key = key});
  if (response.status != StoreStatus::kOk) return std::nullopt;
  return std::move(response.value);
}

std::string StoreClient::get(const std::string& key, Duration timeout) {
  auto response =
      call({.operation = StoreOperation::kGet, .number = timeout.count(), .key = key}, timeout);
  if (response.status != StoreStatus::kOk) {
    throw CommError(fmt::format("{}: nobody has set '{}' within {} ms", name_of(address_), key,
                                timeout.count()));
  }
  return std::move(response.value);
}

int64_t StoreClient::add(const std::string& key, int64_t amount) {
  return call({.operation = StoreOperation::kAdd, .number = amount, .key = key}).number;
}

bool StoreClient::erase(const std::string& key) {
  return call({.operation = StoreOperation::kErase, .key = key}).status == StoreStatus::kOk;
}

}  // namespace skein::control
