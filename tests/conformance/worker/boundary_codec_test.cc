#include "tests/conformance/worker/boundary_codec_test.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/aligned_buffer.h"
#include "codec/messages/memory_store.h"
#include "codec/registry.h"

namespace longhaul::worker {
namespace {

constexpr codec::Shape kShape{2, 48, 128};
constexpr uint64_t kSamples = 4;
// With and without a fixed size, with and without state, stochastic and not.
const char* const kCodecs[] = {"none",
                               "bf16",
                               "fp16",
                               "fixed:bits=6",
                               "fixed:bits=4,rounding=stochastic",
                               "tah",
                               "tah:p=0.8,rounding=stochastic",
                               "gauss:bits=4",
                               "aqsgd:bits=4",
                               "zip"};

std::shared_ptr<const codec::Codec> Codec(const std::string& text) {
  auto codec = codec::ParseCodec(text);
  EXPECT_TRUE(codec.ok()) << codec.status();
  return std::shared_ptr<const codec::Codec>(*std::move(codec));
}

std::vector<float> Values(int seed) {
  std::vector<float> values(kShape.elements());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto x = static_cast<double>(i * 7 + static_cast<size_t>(seed) * 131);
    values[i] = static_cast<float>(std::sin(x * 0.37) * (1 + std::fmod(x, 5)));
  }
  return values;
}

// The samples of a tensor, and where they are remembered.
struct Memory {
  explicit Memory(const codec::Codec& codec)
      : has_state(codec.MessageBytes(kShape) > 0), store(kSamples, codec.MessageBytes(kShape)) {}
  codec::Context ContextOf(uint64_t step) {
    codec::Context context;
    context.seed = 7;
    context.step = Step(step);
    context.microbatch = Microbatch(3);
    if (has_state) {
      context.sample_ids = ids;
      context.messages = &store;
    }
    return context;
  }
  const bool has_state;
  std::vector<uint64_t> ids = {2, 1};
  codec::MemoryStore store;
};

// The codec itself, on the host.
std::vector<std::byte> Reference(const codec::Codec& codec, const std::vector<float>& values,
                                 const codec::Context& context) {
  AlignedBuffer workspace(codec.WorkspaceBytes(kShape));
  std::vector<std::byte> blob(codec.MaxEncodedBytes(kShape));
  codec::EncodeResult result;
  const Status status = codec.Encode({values.data(), codec::Dtype::kF32, kShape}, context,
                                     workspace.span(), blob, &result);
  EXPECT_TRUE(status.ok()) << status;
  blob.resize(result.bytes);
  return blob;
}

std::vector<float> Decoded(const codec::Codec& codec, const std::vector<std::byte>& blob,
                           const codec::Context& context) {
  AlignedBuffer workspace(codec.WorkspaceBytes(kShape));
  std::vector<float> values(kShape.elements());
  const Status status =
      codec.Decode(blob, context, workspace.span(), {values.data(), codec::Dtype::kF32, kShape});
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

BlobBuffer Received(BoundaryCodec* codec, std::span<const std::byte> bytes) {
  auto blob = codec->NewBlob(bytes.size());
  EXPECT_TRUE(blob.ok()) << blob.status();
  std::memcpy(blob->bytes.data(), bytes.data(), bytes.size());
  return *std::move(blob);
}

TEST_P(BoundaryCodecTest, SpeaksAsTheCodecDoesOnTheHost) {
  for (const char* const text : kCodecs) {
    const auto codec = Codec(text);
    auto made = place_->Create({.shape = kShape, .send = codec, .receive = codec});
    ASSERT_TRUE(made.ok()) << text << ": " << made.status();
    Memory sender(*codec), receiver(*codec), wanted_sender(*codec), wanted_receiver(*codec);
    for (uint64_t step = 1; step <= 3; ++step) {
      const std::vector<float> values = Values(static_cast<int>(step));
      const std::vector<std::byte> wanted =
          Reference(*codec, values, wanted_sender.ContextOf(step));
      const auto blob = (*made)->Encode(place_->Put(values, kShape).view, sender.ContextOf(step));
      ASSERT_TRUE(blob.ok()) << text << ": " << blob.status();
      ASSERT_EQ(blob->bytes, wanted.size()) << text;
      EXPECT_EQ(std::memcmp(blob->buffer.bytes.data(), wanted.data(), wanted.size()), 0) << text;
      EXPECT_EQ(blob->nonfinite_tiles, 0u);
      const BlobBuffer received = Received(made->get(), blob->buffer.bytes.first(blob->bytes));
      const auto tensor =
          (*made)->Decode(received.bytes.first(blob->bytes), receiver.ContextOf(step));
      ASSERT_TRUE(tensor.ok()) << text << ": " << tensor.status();
      EXPECT_EQ(tensor->view.shape, kShape);
      EXPECT_EQ(tensor->view.dtype, codec::Dtype::kF32);
      EXPECT_EQ(place_->Get(*tensor), Decoded(*codec, wanted, wanted_receiver.ContextOf(step)))
          << text;
    }
  }
}

// Tensors whose tokens are known: three that teach, and between them one of a validation.
TEST_P(BoundaryCodecTest, PredictsAsTheCodecDoesOnTheHost) {
  constexpr uint32_t kVocabulary = 50;
  for (const char* const text : {"predict:pairs=64/gauss:bits=4", "predict:pairs=0/none"}) {
    const auto codec = Codec(text);
    auto made = place_->Create(
        {.shape = kShape, .send = codec, .receive = codec, .vocabulary = kVocabulary});
    ASSERT_TRUE(made.ok()) << text << ": " << made.status();
    BoundaryCodec& boundary = **made;
    const auto shape = codec::predict::TablesShapeFor(*codec, kVocabulary, kShape.channels);
    EXPECT_TRUE(boundary.predicts());
    EXPECT_EQ(boundary.tables_shape(), shape);
    auto wanted = codec::predict::Tables::Create(shape);
    auto learned = codec::predict::Tables::Create(shape);
    ASSERT_TRUE(wanted.ok() && learned.ok());
    for (int tensor = 0; tensor < 4; ++tensor) {
      std::vector<uint32_t> ids(uint64_t{kShape.samples} * kShape.tokens);
      for (size_t k = 0; k < ids.size(); ++k) ids[k] = (k * k + static_cast<size_t>(tensor)) % 50;
      codec::Context context;
      context.token_ids = ids;
      context.learns = tensor != 1;
      codec::Context of_wanted = context;
      of_wanted.tables = &*wanted;
      learned->CopyFrom(*wanted);
      const std::vector<float> values = Values(tensor);
      const std::vector<std::byte> blob = Reference(*codec, values, of_wanted);
      const auto sent = boundary.Encode(place_->Put(values, kShape).view, context);
      ASSERT_TRUE(sent.ok()) << text << ": " << sent.status();
      ASSERT_EQ(sent->bytes, blob.size()) << text;
      EXPECT_EQ(std::memcmp(sent->buffer.bytes.data(), blob.data(), blob.size()), 0) << text;
      context.token_ids = {};
      const BlobBuffer received = Received(&boundary, blob);
      const auto came = boundary.Decode(received.bytes.first(blob.size()), context);
      ASSERT_TRUE(came.ok()) << text << ": " << came.status();
      of_wanted.tables = &*learned;
      EXPECT_EQ(place_->Get(*came), Decoded(*codec, blob, of_wanted)) << text;
      ASSERT_NE(came->token_ids, nullptr);
      EXPECT_EQ(*came->token_ids, ids);
      EXPECT_EQ(*boundary.TablesCheck(), wanted->check());
    }
    // What a checkpoint holds brings another one to the same.
    const auto saved = boundary.SaveTables();
    ASSERT_TRUE(saved.ok()) << saved.status();
    EXPECT_TRUE(std::ranges::equal(saved->memory(), wanted->memory()));
    auto other = place_->Create(
        {.shape = kShape, .send = codec, .receive = codec, .vocabulary = kVocabulary});
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_NE(*(*other)->TablesCheck(), wanted->check());
    ASSERT_TRUE((*other)->RestoreTables(*saved).ok());
    EXPECT_EQ(*(*other)->TablesCheck(), wanted->check());
  }
}

// As many as are in flight, while others come and go.
TEST_P(BoundaryCodecTest, WhatItGaveStaysAsItIs) {
  const auto codec = Codec("tah");
  auto made = place_->Create({.shape = kShape, .send = codec, .receive = codec});
  ASSERT_TRUE(made.ok()) << made.status();
  Memory memory(*codec);
  std::vector<EncodedBlob> blobs;
  std::vector<BoundaryTensor> tensors;
  for (int i = 0; i < 6; ++i) {
    auto blob = (*made)->Encode(place_->Put(Values(i), kShape).view, memory.ContextOf(1));
    ASSERT_TRUE(blob.ok()) << blob.status();
    auto tensor = (*made)->Decode(blob->buffer.bytes.first(blob->bytes), memory.ContextOf(1));
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    if (i == 2) continue;  // lets go of both
    blobs.push_back(*std::move(blob));
    tensors.push_back(*std::move(tensor));
  }
  made->reset();  // they may outlive it
  for (size_t i = 0; i < blobs.size(); ++i) {
    const int seed = static_cast<int>(i < 2 ? i : i + 1);
    const std::vector<std::byte> wanted = Reference(*codec, Values(seed), memory.ContextOf(1));
    ASSERT_EQ(blobs[i].bytes, wanted.size());
    EXPECT_EQ(std::memcmp(blobs[i].buffer.bytes.data(), wanted.data(), wanted.size()), 0) << i;
    EXPECT_EQ(place_->Get(tensors[i]), Decoded(*codec, wanted, memory.ContextOf(1))) << i;
  }
}

// Calls of both in turn, while what the other one gave is there.
TEST_P(BoundaryCodecTest, AnotherCodecWorksInItsMemory) {
  const auto coarse = Codec("fixed:bits=4"), none = Codec("none");
  auto made = place_->Create({.shape = kShape, .send = coarse, .receive = coarse});
  ASSERT_TRUE(made.ok()) << made.status();
  auto clean = (*made)->Sharing(none);
  ASSERT_TRUE(clean.ok()) << clean.status();
  Memory memory(*coarse);
  const codec::Context context = memory.ContextOf(1);
  const auto pass = [&](BoundaryCodec& codec, int seed) {
    auto blob = codec.Encode(place_->Put(Values(seed), kShape).view, context);
    EXPECT_TRUE(blob.ok()) << blob.status();
    const BlobBuffer received = Received(&codec, blob->buffer.bytes.first(blob->bytes));
    auto tensor = codec.Decode(received.bytes.first(blob->bytes), context);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return std::pair(*std::move(blob), *std::move(tensor));
  };
  std::vector<std::pair<EncodedBlob, BoundaryTensor>> passed;
  for (int i = 0; i < 3; ++i) {
    passed.push_back(pass(**made, i));
    passed.push_back(pass(**clean, i));
  }
  made->reset();
  passed.push_back(pass(**clean, 3));  // which needs no other
  clean->reset();
  for (size_t i = 0; i < passed.size(); ++i) {
    const auto& [blob, tensor] = passed[i];
    const auto codec = i % 2 == 0 && i < 6 ? coarse : none;
    const std::vector<float> values = Values(static_cast<int>(i / 2));
    const std::vector<std::byte> wanted = Reference(*codec, values, context);
    ASSERT_EQ(blob.bytes, wanted.size());
    EXPECT_EQ(std::memcmp(blob.buffer.bytes.data(), wanted.data(), wanted.size()), 0) << i;
    EXPECT_EQ(place_->Get(tensor), Decoded(*codec, wanted, context)) << i;
    if (codec == none) {
      EXPECT_EQ(place_->Get(tensor), values);
    }
  }
}

TEST_P(BoundaryCodecTest, ACodecThatNeedsMoreMemorySharesNone) {
  const auto none = Codec("none");
  auto made = place_->Create({.shape = kShape, .send = none, .receive = none});
  ASSERT_TRUE(made.ok()) << made.status();
  const Status status = (*made)->Sharing(Codec("gauss:bits=4")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(status)), ::testing::HasSubstr("expected a codec"));
}

TEST_P(BoundaryCodecTest, CountsWhatIsNotFinite) {
  const auto codec = Codec("fixed:bits=6");
  auto made = place_->Create({.shape = kShape, .send = codec, .receive = codec});
  ASSERT_TRUE(made.ok()) << made.status();
  std::vector<float> values = Values(1);
  values[5] = std::numeric_limits<float>::quiet_NaN();
  values[700] = std::numeric_limits<float>::infinity();
  Memory memory(*codec);
  const auto blob = (*made)->Encode(place_->Put(values, kShape).view, memory.ContextOf(1));
  ASSERT_TRUE(blob.ok()) << blob.status();
  EXPECT_EQ(blob->nonfinite_tiles, 2u);
}

TEST_P(BoundaryCodecTest, RefusesWhatNoPeerMaySend) {
  for (const char* const text : kCodecs) {
    const auto codec = Codec(text);
    auto made = place_->Create({.shape = kShape, .send = codec, .receive = codec});
    ASSERT_TRUE(made.ok()) << made.status();
    Memory sender(*codec), receiver(*codec);
    const std::vector<std::byte> good = Reference(*codec, Values(1), sender.ContextOf(1));
    const auto status_of = [&](std::vector<std::byte> bytes) {
      const BlobBuffer blob = Received(made->get(), bytes);
      return (*made)->Decode(blob.bytes.first(bytes.size()), receiver.ContextOf(1)).status();
    };
    std::vector<std::byte> shorter(good.begin(), good.end() - 1), magic = good;
    magic[0] ^= std::byte{1};
    EXPECT_FALSE(status_of(shorter).ok()) << text;
    EXPECT_FALSE(status_of(magic).ok()) << text;
    EXPECT_FALSE(status_of(std::vector<std::byte>(8)).ok()) << text;
    const Status status = status_of(good);
    EXPECT_TRUE(status.ok()) << text << ": nothing of the others stays: " << status;
  }
}

}  // namespace
}  // namespace longhaul::worker
