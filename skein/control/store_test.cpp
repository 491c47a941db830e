// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "skein/control/handshake.h"
#include "skein/control/socket.h"
#include "skein/control/store_client.h"
#include "skein/control/store_server.h"
#include "skein/control/wire.h"
#include "skein/core/error.h"
#include "skein/core/file_system.h"
#include "skein/core/testing.h"

namespace skein::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct StoreTest : testing::Test {
  Secret secret = make_secret();
  StoreServer server{
      secret,
      {.size = 4, .generation = 3, .handshake_timeout = milliseconds(100), .max_strangers = 8}};

  StoreAddress address() const { return {.port = server.port(), .rank = 1, .generation = 3}; }
  StoreClient client() { return {secret, address()}; }
};

// Speaks the protocol by hand, so that it can break it.
struct RawPeer {
  Deadline deadline = Clock::now() + seconds(10);
  File socket;
  std::string proof;

  explicit RawPeer(int port) : socket(connect_to("127.0.0.1", port, deadline)) {}

  void send(std::string_view bytes) const { send_all(socket, bytes, deadline); }
  // A closed connection reads as empty or as reset, depending on what was on its way.
  bool closed() const try {
    return receive_some(socket, 64, deadline).empty();
  } catch (const CommError&) {
    return Clock::now() < deadline;
  }
  Transcript prove(const Secret& secret, const std::string& hello) {
    send(hello);
    const auto challenge = receive_exactly(socket, kChallengeSize, deadline);
    Transcript transcript(secret, hello, challenge.substr(0, kNonceSize));
    proof = transcript.rank_proof();
    send(proof);
    return transcript;
  }
};

std::string good_hello() { return encode_hello({.rank = 1, .generation = 3}, make_nonce()); }

TEST_F(StoreTest, KeepsWhatItIsTold) {
  auto a = client();
  auto b = client();
  EXPECT_EQ(a.try_get("k"), std::nullopt);
  a.set("k", std::string("v\0w", 3));
  EXPECT_EQ(b.try_get("k"), std::string("v\0w", 3));
  EXPECT_EQ(b.get("k", seconds(10)), std::string("v\0w", 3));
  EXPECT_EQ(a.add("n", 5), 5);
  EXPECT_EQ(b.add("n", -7), -2);
  EXPECT_TRUE(b.erase("k"));
  EXPECT_FALSE(a.erase("k"));
  const std::string large(kMaxStoreValue, 'x');
  a.set("large", large);
  EXPECT_EQ(b.get("large", seconds(10)), large);
  EXPECT_THROW(a.set("large", large + "x"), InternalError);
}

TEST_F(StoreTest, AWaitingGetHoldsUpNobody) {
  auto store = client();
  std::string got;
  std::thread waiter([&] { got = store.get("late", seconds(30)); });
  for (int i = 0; i < 100; ++i) store.add("other", 1);
  store.set("late", "here");
  waiter.join();
  EXPECT_EQ(got, "here");
}

TEST_F(StoreTest, ATimeoutNamesTheKeyAndTheClientGoesOn) {
  auto store = client();
  EXPECT_PRED2(contains, refusal<CommError>([&] { store.get("never set", milliseconds(20)); }),
               "never set");
  EXPECT_EQ(store.add("n", 1), 1);
}

TEST_F(StoreTest, CountsRightFromManyThreads) {
  auto store = client();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) store.add("n", 1);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(store.add("n", 0), 800);
}

TEST_F(StoreTest, AClientWithAnotherSecretKnowsAtOnce) {
  EXPECT_THROW(StoreClient(make_secret(), address()), RefusedError);
}

TEST_F(StoreTest, StrangersAreClosedWithoutEffect) {
  {
    RawPeer liar(server.port());  // does not know the secret, and answers all the same
    auto transcript = liar.prove(make_secret(), good_hello());
    FrameSealer sealer(transcript.key_to_store());
    liar.send(sealer.seal(encode(StoreRequest{.operation = StoreOperation::kSet, .key = "k"})));
    EXPECT_TRUE(liar.closed());
  }
  const RawPeer noise(server.port());
  noise.send(std::string(kHelloSize, 'x'));
  EXPECT_TRUE(noise.closed());
  EXPECT_EQ(client().try_get("k"), std::nullopt);
}

// Signed, so that nobody but the store can say it, and told apart by those alone who know the
// secret.
TEST_F(StoreTest, WhoIsOfNoUseIsToldSoAndClosed) {
  for (const Hello& claim : {Hello{.rank = 4, .generation = 3}, Hello{.rank = 1, .generation = 2},
                             Hello{.role = Role::kNode}, Hello{.role = Role::kGuest}}) {
    const auto hello = encode_hello(claim, make_nonce());
    const RawPeer peer(server.port());
    peer.send(hello);
    const auto answer = receive_exactly(peer.socket, kChallengeSize, peer.deadline);
    const Transcript transcript(claim.role == Role::kGuest ? Secret{} : secret, hello,
                                answer.substr(0, kNonceSize));
    EXPECT_EQ(answer.substr(kNonceSize), transcript.refusal());
    EXPECT_TRUE(peer.closed());
  }
  auto old = address();
  old.generation = 2;
  EXPECT_THROW(StoreClient(secret, old), RefusedError);
}

TEST_F(StoreTest, ARecordedHandshakeOpensNothing) {
  const auto hello = good_hello();
  RawPeer real(server.port());
  real.prove(secret, hello);
  const RawPeer replay(server.port());
  replay.send(hello);
  receive_exactly(replay.socket, kChallengeSize, replay.deadline);
  replay.send(real.proof);
  EXPECT_TRUE(replay.closed());
}

TEST_F(StoreTest, ARepeatedFrameCountsOnce) {
  RawPeer peer(server.port());
  auto transcript = peer.prove(secret, good_hello());
  FrameSealer sealer(transcript.key_to_store());
  const auto frame =
      sealer.seal(encode(StoreRequest{.operation = StoreOperation::kAdd, .number = 1, .key = "n"}));
  peer.send(frame);
  FrameOpener opener(transcript.key_to_rank());
  while (!opener.next()) opener.feed(receive_some(peer.socket, 1024, peer.deadline));
  peer.send(frame);
  EXPECT_TRUE(peer.closed());
  EXPECT_EQ(client().add("n", 0), 1);
}

TEST_F(StoreTest, AnOversizedOrSenselessFrameClosesItsConnectionOnly) {
  auto store = client();
  RawPeer oversized(server.port());
  oversized.prove(secret, good_hello());
  std::string head;
  put_integer(head, uint32_t{1} << 30);
  oversized.send(head);
  EXPECT_TRUE(oversized.closed());
  RawPeer senseless(server.port());
  auto transcript = senseless.prove(secret, good_hello());
  senseless.send(FrameSealer(transcript.key_to_store()).seal("no message"));
  EXPECT_TRUE(senseless.closed());
  EXPECT_EQ(store.add("n", 1), 1);
}

TEST_F(StoreTest, SilentConnectionsKeepNobodyOut) {
  std::vector<RawPeer> silent;
  for (int i = 0; i < 200; ++i) silent.emplace_back(server.port());
  EXPECT_EQ(client().add("n", 1), 1);
  for (const auto& peer : silent) EXPECT_TRUE(peer.closed());
}

TEST_F(StoreTest, AHalfHandshakeIsClosedInTime) {
  RawPeer slow(server.port());
  slow.send(good_hello().substr(0, 10));
  EXPECT_TRUE(slow.closed());
}

TEST_F(StoreTest, ANewGenerationForgetsTheOldOne) {
  auto old = client();
  old.set("k", "old");
  std::thread waiter([&] { EXPECT_THROW(old.get("never", seconds(30)), CommError); });
  server.begin_generation(4, 6);
  waiter.join();
  EXPECT_THROW(old.try_get("k"), CommError);
  EXPECT_THROW(client(), RefusedError);
  auto next = address();
  next.generation = 4;
  next.rank = 5;
  StoreClient rank(secret, next);
  EXPECT_EQ(rank.try_get("k"), std::nullopt);
}

TEST_F(StoreTest, LaunchersHaveKeysOfTheirOwn) {
  EXPECT_THROW(client().set("node/k", "from a rank"), CommError);

  struct Heard {
    std::mutex mutex;
    std::vector<std::string> sets;
    std::promise<int> closed;
  } heard;
  const auto shared = make_secret();
  StoreServer nodes(secret, {.nodes = 2,
                             .guest_secret = shared,
                             .on_node_set =
                                 [&](int node, const std::string& key, const std::string& value) {
                                   const std::lock_guard lock(heard.mutex);
                                   heard.sets.push_back(std::to_string(node) + key + value);
                                 },
                             .on_node_closed = [&](int node) { heard.closed.set_value(node); }});
  nodes.set("node/command", "run");
  StoreAddress place{.port = nodes.port(), .role = Role::kNode, .rank = 1};
  EXPECT_THROW(StoreClient(secret, place), RefusedError) << "it was not admitted";
  place.generation = ask_admission(shared, place, "id", "me").number;
  {
    StoreClient node(secret, place);
    EXPECT_EQ(node.get("node/command", seconds(10)), "run");
    node.set("node/status", "well");
    nodes.begin_generation(1, 1);  // stays connected, and so do its values
    EXPECT_EQ(node.try_get("node/status"), "well");
  }
  EXPECT_EQ(heard.closed.get_future().get(), 1);
  EXPECT_EQ(heard.sets, std::vector<std::string>{"1node/statuswell"});
  EXPECT_THROW(ask_admission(shared, {.port = nodes.port(), .rank = 2}, "id", "me"), RefusedError);
}

TEST(StoreServer, APlaceIsTakenAgainOnceItIsLeft) {
  const auto shared = make_secret();
  const auto secret = make_secret();
  std::atomic<int> closed = 0;
  StoreServer server(secret, {.nodes = 2,
                              .guest_secret = shared,
                              .token = "token",
                              .on_node_closed = [&](int node) { closed = node; }});
  const auto ask = [&](const char* id) {
    return ask_admission(shared, {.port = server.port(), .rank = 1}, id, std::string(id) + " pid");
  };
  const auto join = [&](uint64_t number) {
    return StoreClient(
        secret, {.port = server.port(), .role = Role::kNode, .rank = 1, .generation = number});
  };
  EXPECT_EQ(ask("first").token, "token");
  EXPECT_EQ(ask("second").holder, "first pid") << "it is about to connect";
  EXPECT_EQ(ask("first").number, 1U) << "it asks again";
  std::optional<StoreClient> first(
      std::in_place, secret,
      StoreAddress{.port = server.port(), .role = Role::kNode, .rank = 1, .generation = 1});
  server.expel_node(1, 7);
  first->set("node/k", "of an admission that is not its own: nothing happens");
  EXPECT_EQ(ask("second").holder, "first pid");
  server.expel_node(1, 1);
  for (int i = 0; i < 2000 && closed == 0; ++i) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(closed, 1);
  EXPECT_THROW(first->set("node/k", "expelled"), CommError);
  EXPECT_THROW(join(1), RefusedError);
  EXPECT_EQ(ask("second").number, 2U);
  EXPECT_EQ(join(2).try_get("node/k"), "of an admission that is not its own: nothing happens");
  EXPECT_THROW(join(1), RefusedError);
  EXPECT_THROW(ask_admission(make_secret(), {.port = server.port(), .rank = 1}, "x", "x"),
               RefusedError);
}

// What a guest may do with the shared secret is to join, no more.
TEST(StoreServer, AGuestReadsAndWritesNothing) {
  const auto shared = make_secret();
  StoreServer server(make_secret(), {.nodes = 2, .guest_secret = shared});
  for (const auto operation : {StoreOperation::kSet, StoreOperation::kTryGet}) {
    RawPeer guest(server.port());
    auto transcript =
        guest.prove(shared, encode_hello({.role = Role::kGuest, .rank = 1}, make_nonce()));
    FrameSealer sealer(transcript.key_to_store());
    guest.send(sealer.seal(encode(StoreRequest{.operation = operation, .key = "node/k"})));
    EXPECT_TRUE(guest.closed());
  }
}

TEST(Secret, EveryRunHasItsOwn) {
  const auto shared = make_secret();
  EXPECT_EQ(secret_of_run(shared, "a"), secret_of_run(shared, "a"));
  EXPECT_NE(secret_of_run(shared, "a"), secret_of_run(shared, "b"));
  EXPECT_NE(secret_of_run(shared, "a"), secret_of_run(make_secret(), "a"));
  EXPECT_NE(secret_of_run(shared, ""), shared);
}

TEST(StoreServer, APortInUseIsNamedWithWhatToDo) {
  const auto taken = listen_on("127.0.0.1", 0);
  const int port = local_port(taken);
  const auto text = refusal<UserError>([&] { StoreServer(make_secret(), {.port = port}); });
  EXPECT_PRED2(contains, text, std::to_string(port));
  EXPECT_PRED2(contains, text, "--master-port");
}

TEST(StoreServer, AnAddressOfAnotherMachineIsRefused) {
  const std::string other = "192.0.2.1";  // kept for documents, RFC 5737
  EXPECT_PRED2(contains, refusal<UserError>([&] { StoreServer(make_secret(), {.host = other}); }),
               "192.0.2.1 is no address of this machine");
}

struct SecretFileTest : testing::Test {
  fs::path folder;
  void SetUp() override { folder = make_temporary_folder("secret"); }
  void TearDown() override { fs::remove_all(folder); }
};

TEST_F(SecretFileTest, IsWrittenAnewAndReadByItsOwnerAlone) {
  const auto path = folder / "secret";
  write_secret_file(path);
  const auto first = read_secret_file(path);
  EXPECT_EQ(first, read_secret_file(path));
  write_secret_file(path);
  EXPECT_NE(first, read_secret_file(path));
  fs::permissions(path, fs::perms::group_read, fs::perm_options::add);
  EXPECT_THROW(read_secret_file(path), UserError);
}

// What a kill at this moment leaves must have a name that the next start sweeps.
TEST_F(SecretFileTest, HasATemporaryNameThatIsSweptUntilItIsThere) {
  struct Watched final : FileSystem {
    int rename(const fs::path& from, const fs::path& to, unsigned flags) override {
      name = from.filename();
      mode = fs::status(from).permissions();
      return FileSystem::rename(from, to, flags);
    }
    std::string name;
    fs::perms mode{};
  } watched;
  const ScopedFileSystem scope(watched);
  write_secret_file(folder / "secret");
  EXPECT_EQ(watched.name.substr(0, 11), "secret.tmp-");
  EXPECT_EQ(watched.name.size(), temporary_beside("secret").string().size());
  EXPECT_EQ(watched.mode, fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(SecretFileTest, AShortOrMissingOneIsRefused) {
  const auto path = folder / "secret";
  EXPECT_THROW(read_secret_file(path), UserError);
  write_file_atomically(path, std::string(31, 'x') + "\n\n");
  fs::permissions(path, fs::perms::owner_read);
  EXPECT_THROW(read_secret_file(path), UserError);
  EXPECT_THROW(read_secret_file(folder), UserError);
}

TEST(StoreServer, ListensOnlyWhereItIsTold) {
  const auto secret = make_secret();
  const StoreServer server(secret, {.host = "127.0.0.2"});
  const auto deadline = Clock::now() + seconds(10);
  EXPECT_TRUE(connect_to("127.0.0.2", server.port(), deadline));
  EXPECT_THROW(connect_to("127.0.0.1", server.port(), deadline), CommError);
  EXPECT_THROW(StoreServer(secret, {.host = "127.0.0.2", .port = server.port()}), UserError);
}

TEST(StoreServer, ItsEndIsAnErrorForThoseWhoWait) {
  const auto secret = make_secret();
  auto server = std::make_unique<StoreServer>(secret, StoreServerOptions{});
  StoreClient store(secret, {.port = server->port()});
  std::thread waiter([&] { EXPECT_THROW(store.get("k", seconds(30)), CommError); });
  std::this_thread::sleep_for(milliseconds(20));
  server.reset();
  waiter.join();
}

}  // namespace
}  // namespace skein::control
