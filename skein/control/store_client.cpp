// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/control/store_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "skein/control/socket.h"
#include "skein/core/error.h"

namespace skein::control {
namespace {

constexpr int kAttempts = 5;
constexpr size_t kReadSize = size_t{64} << 10;
// Keeps the sum of clock and wait in range.
constexpr Store::Duration kLongestWait = std::chrono::hours(24 * 30);

std::string name_of(const StoreAddress& address) {
  return fmt::format("{} {}", address.role == Role::kNode ? "node" : "rank", address.rank);
}

}  // namespace

class StoreClient::Connection {
 public:
  // Tries a few times: among a flood of strangers the store may have closed us for one of them.
  static std::unique_ptr<Connection> open(const Secret& secret, const StoreAddress& address);
  StoreResponse call(const StoreRequest& request, Deadline deadline);

 private:
  Connection(File socket, const Transcript& transcript)
      : socket_(std::move(socket)),
        sealer_(transcript.key_to_store()),
        opener_(transcript.key_to_rank()) {}
  static std::unique_ptr<Connection> join(const Secret& secret, const StoreAddress& address,
                                          Deadline deadline);

  File socket_;
  FrameSealer sealer_;
  FrameOpener opener_;
};

std::unique_ptr<StoreClient::Connection> StoreClient::Connection::join(const Secret& secret,
                                                                       const StoreAddress& address,
                                                                       Deadline deadline) {
  auto socket = connect_to(address.host, address.port, deadline);
  const auto hello = encode_hello(
      {.role = address.role, .rank = address.rank, .generation = address.generation}, make_nonce());
  send_all(socket, hello, deadline);
  const auto challenge = receive_exactly(socket, kChallengeSize, deadline);
  const Transcript transcript(secret, hello, challenge.substr(0, kNonceSize));
  if (!same_proof(challenge.substr(kNonceSize), transcript.store_proof())) {
    throw CommError("it does not know this run's secret");
  }
  send_all(socket, transcript.rank_proof(), deadline);
  std::unique_ptr<Connection> connection(new Connection(std::move(socket), transcript));
  connection->call({.operation = StoreOperation::kTryGet},
                   deadline);  // an answer shows that the store has accepted our proof
  return connection;
}

std::unique_ptr<StoreClient::Connection> StoreClient::Connection::open(
    const Secret& secret, const StoreAddress& address) {
  const auto deadline = Clock::now() + address.answer_timeout;
  for (int attempt = 1;; ++attempt) {
    try {
      return join(secret, address, deadline);
    } catch (const CommError& error) {
      if (attempt == kAttempts || Clock::now() >= deadline) {
        throw CommError(fmt::format("{} cannot join the control store at {} port {}: {}",
                                    name_of(address), address.host, address.port, error.what()));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5 << attempt));
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
  idle_.push_back(Connection::open(secret_, address_));
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
  return Connection::open(secret_, address_);
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
