// Answers of another worker, honest and not.
#include "worker/data/chunk_requests.h"

#include <gtest/gtest.h>

#include <vector>

namespace longhaul::worker {
namespace {

using State = ChunkRequests::State;

std::vector<std::byte> Bytes(size_t count, int value = 1) {
  return std::vector<std::byte>(count, std::byte(value));
}

TEST(ChunkRequests, PiecesMakeAChunkOfEachRequest) {
  ChunkRequests requests;
  const uint32_t a = requests.Begin(5), b = requests.Begin(3);
  EXPECT_TRUE(requests.Take(a, Bytes(2, 1)).ok());
  EXPECT_TRUE(requests.Take(b, Bytes(3, 2)).ok());
  EXPECT_EQ(requests.StateOf(a), State::kComing);
  EXPECT_EQ(requests.BytesOf(a), 2u);
  EXPECT_TRUE(requests.Take(a, Bytes(3, 1)).ok());
  EXPECT_EQ(requests.StateOf(a), State::kWhole);
  EXPECT_EQ(requests.StateOf(b), State::kWhole);
  EXPECT_EQ(requests.End(a), Bytes(5, 1));
  EXPECT_EQ(requests.End(b), Bytes(3, 2));
  EXPECT_EQ(requests.open(), 0u);
}

TEST(ChunkRequests, WhatIsNotThereIsNoError) {
  ChunkRequests requests;
  const uint32_t request = requests.Begin(5);
  EXPECT_TRUE(requests.TakeNotHere(request).ok());
  EXPECT_EQ(requests.StateOf(request), State::kNotHere);
  EXPECT_TRUE(requests.End(request).empty());
}

TEST(ChunkRequests, NobodyTakesMoreThanWasAskedFor) {
  ChunkRequests requests;
  const uint32_t request = requests.Begin(5);
  EXPECT_TRUE(requests.Take(request, Bytes(4)).ok());
  EXPECT_FALSE(requests.Take(request, Bytes(2)).ok());
  EXPECT_EQ(requests.BytesOf(request), 4u);
  EXPECT_FALSE(requests.TakeNotHere(request).ok()) << "a part has come";
  EXPECT_TRUE(requests.Take(request, Bytes(1)).ok());
  EXPECT_FALSE(requests.Take(request, Bytes(1)).ok());
  EXPECT_FALSE(requests.TakeNotHere(request).ok());
  EXPECT_EQ(requests.End(request).size(), 5u);
  EXPECT_FALSE(requests.Take(request, Bytes(1)).ok()) << "it was answered";
  EXPECT_FALSE(requests.Take(request + 1, Bytes(1)).ok()) << "nobody asked";
  EXPECT_FALSE(requests.TakeNotHere(request + 1).ok());
}

TEST(ChunkRequests, WhoNoLongerWaitsStillCountsUntilTheAnswerHasCome) {
  ChunkRequests requests;
  const uint32_t a = requests.Begin(5), b = requests.Begin(5);
  EXPECT_TRUE(requests.Take(a, Bytes(2)).ok());
  EXPECT_EQ(requests.End(a).size(), 2u);
  EXPECT_TRUE(requests.End(b).empty());
  EXPECT_EQ(requests.open(), 2u);
  EXPECT_TRUE(requests.Take(a, Bytes(3)).ok());
  EXPECT_TRUE(requests.TakeNotHere(b).ok());
  EXPECT_EQ(requests.open(), 0u);
  EXPECT_FALSE(requests.Take(a, Bytes(1)).ok());
}

}  // namespace
}  // namespace longhaul::worker
