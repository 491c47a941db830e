// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/control/frame.h"

#include <gtest/gtest.h>

#include <random>

#include "skein/control/handshake.h"
#include "skein/control/wire.h"
#include "skein/core/error.h"

namespace skein::control {
namespace {

const FrameKey kFrameTestKey = {1, 2, 3};

TEST(Frame, SurvivesAnyCutOfTheStream) {
  FrameSealer sealer(kFrameTestKey);
  std::string stream;
  for (const char* body : {"first", "", "third"}) stream += sealer.seal(body);
  FrameOpener opener(kFrameTestKey);
  std::vector<std::string> bodies;
  for (const char byte : stream) {
    opener.feed({&byte, 1});
    while (const auto body = opener.next()) bodies.push_back(*body);
  }
  EXPECT_EQ(bodies, (std::vector<std::string>{"first", "", "third"}));
}

TEST(Frame, RefusesChangesRepetitionsAndOtherKeys) {
  const auto refused = [](const std::string& stream, FrameKey key = kFrameTestKey) {
    FrameOpener opener(key);
    opener.feed(stream);
    try {
      while (opener.next()) {
      }
      return false;
    } catch (const CommError&) {
      return true;
    }
  };
  FrameSealer sealer(kFrameTestKey);
  const auto first = sealer.seal("add 1");
  const auto second = sealer.seal("add 2");
  EXPECT_FALSE(refused(first + second));
  EXPECT_TRUE(refused(first + first));
  EXPECT_TRUE(refused(second));
  EXPECT_TRUE(refused(first, FrameKey{9}));
  for (size_t i = 4; i < first.size(); ++i) {
    auto changed = first;
    changed[i] ^= 1;
    EXPECT_TRUE(refused(changed)) << "byte " << i;
  }
}

TEST(Frame, RefusesALengthBeforeTheBodyComes) {
  for (const uint32_t length : {uint32_t{kMaxBody} + 1, uint32_t{1} << 30, ~uint32_t{0}}) {
    std::string head;
    put_integer(head, length);
    FrameOpener opener(kFrameTestKey);
    opener.feed(head);
    EXPECT_THROW(opener.next(), CommError) << length;
  }
}

TEST(Frame, MessagesComeBackAsTheyWere) {
  const auto request = decode_request(encode(StoreRequest{.operation = StoreOperation::kAdd,
                                                          .number = -7,
                                                          .key = "k",
                                                          .value = std::string("\0v", 2)}));
  ASSERT_TRUE(request);
  EXPECT_EQ(request->operation, StoreOperation::kAdd);
  EXPECT_EQ(request->number, -7);
  EXPECT_EQ(request->key, "k");
  EXPECT_EQ(request->value, std::string("\0v", 2));
  const auto response = decode_response(
      encode(StoreResponse{.status = StoreStatus::kTimeout, .number = 5, .value = "x"}));
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, StoreStatus::kTimeout);
  EXPECT_EQ(response->number, 5);
  EXPECT_EQ(response->value, "x");
}

TEST(Frame, RandomBytesAreDecodedOrRefused) {
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes(random() % 80, '\0');
    for (auto& byte : bytes) byte = static_cast<char>(random());
    if (const auto request = decode_request(bytes)) {
      EXPECT_EQ(encode(*request), bytes);
    }
    if (const auto response = decode_response(bytes)) {
      EXPECT_EQ(encode(*response), bytes);
    }
    decode_hello(bytes);
  }
  std::string key_longer_than_body = encode(StoreRequest{.key = "abc"});
  key_longer_than_body.pop_back();
  EXPECT_FALSE(decode_request(key_longer_than_body));
}

TEST(Handshake, EveryPartChangesEveryProof) {
  const Secret secret = {7};
  const std::string rank_nonce(kNonceSize, 'r');
  const std::string store_nonce(kNonceSize, 's');
  const auto hello = encode_hello({.rank = 1, .generation = 2}, rank_nonce);
  ASSERT_EQ(hello.size(), kHelloSize);
  EXPECT_EQ(decode_hello(hello)->rank, 1U);
  EXPECT_EQ(decode_hello(hello)->generation, 2U);
  const Transcript reference(secret, hello, store_nonce);
  EXPECT_NE(reference.rank_proof(), reference.store_proof());
  EXPECT_NE(reference.key_to_rank(), reference.key_to_store());
  const std::vector<Transcript> others = {
      Transcript(Secret{8}, hello, store_nonce),
      Transcript(secret, encode_hello({.rank = 2, .generation = 2}, rank_nonce), store_nonce),
      Transcript(secret, encode_hello({.rank = 1, .generation = 3}, rank_nonce), store_nonce),
      Transcript(secret, encode_hello({.rank = 1, .generation = 2}, store_nonce), store_nonce),
      Transcript(secret, hello, rank_nonce)};
  for (const auto& other : others) {
    EXPECT_NE(reference.rank_proof(), other.rank_proof());
    EXPECT_NE(reference.store_proof(), other.store_proof());
    EXPECT_NE(reference.key_to_store(), other.key_to_store());
  }
}

}  // namespace
}  // namespace skein::control
