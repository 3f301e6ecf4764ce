// aqsgd's kernels against the CPU's, over visits of the same samples: the same blobs, activations
// and records, and the same blobs refused.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "base/cuda/graph.h"
#include "codec/aqsgd/format.h"
#include "codec/cuda/message_staging.h"
#include "codec/messages/memory_store.h"
#include "tests/unit/codec/cuda/gpu_contents.h"

namespace longhaul::codec::cuda {
namespace {

using ::longhaul::cuda::Graph;

// A CPU and a GPU at the same side of a boundary.
struct Side {
  Side(const CudaCodec& codec, const Shape& shape, uint64_t samples)
      : staging(Must(MessageStaging::Create(Gpu(), codec, shape))),
        cpu(samples, codec.cpu().MessageBytes(shape)),
        gpu(samples, codec.cpu().MessageBytes(shape)) {}

  void ExpectSameRecords() const {
    for (uint64_t sample = 0; sample < cpu.samples(); ++sample) {
      ASSERT_EQ(FirstDifference(cpu.Read(sample), gpu.Read(sample)), -1) << "record " << sample;
    }
  }

  MessageStaging staging;
  MemoryStore cpu, gpu;
};

Context ContextOf(const std::vector<uint64_t>& ids, MemoryStore* store) {
  Context context;
  context.step = Step(1);
  context.sample_ids = ids;
  context.messages = ids.empty() ? nullptr : store;
  return context;
}

// Both sides of a boundary, on both machines.
class Boundary {
 public:
  Boundary(const std::string& text, const Shape& shape, uint64_t samples)
      : codec_(Must(CudaCodec::Create(text))),
        shape_(shape),
        sender_(codec_, shape, samples),
        receiver_(codec_, shape, samples),
        stream_(Must(Stream::Create(Gpu()))),
        scratch_(Scratch(codec_, shape)),
        workspace_(Upload(std::vector<std::byte>(codec_.WorkspaceBytes(shape), kPoison), &stream_)),
        blob_dev_(Must(DeviceBuffer::Create(Gpu(), codec_.MaxEncodedBytes(shape) + kGuard))),
        out_dev_(Must(DeviceBuffer::Create(Gpu(), 4 * shape.elements() + kGuard))),
        fault_(Must(DeviceBuffer::Create(Gpu(), 4))) {}

  // Sends on both, and compares.
  std::vector<std::byte> Send(const std::vector<std::byte>& in, Dtype dtype,
                              const std::vector<uint64_t>& ids) {
    std::vector<std::byte> blob(codec_.MaxEncodedBytes(shape_));
    EncodeResult result;
    EXPECT_TRUE(codec_.cpu()
                    .Encode({in.data(), dtype, shape_}, ContextOf(ids, &sender_.cpu),
                            Aligned(codec_, shape_, &scratch_), blob, &result)
                    .ok());
    blob.resize(result.bytes);
    const Context context = ContextOf(ids, &sender_.gpu);
    const DeviceBuffer in_dev = Upload(in, &stream_);
    const size_t most = codec_.MaxEncodedBytes(shape_);
    const std::vector<std::byte> poison(most + kGuard, kPoison);
    EXPECT_TRUE(stream_.Copy(blob_dev_.data_dev(), poison.data(), poison.size()).ok());
    Status status = sender_.staging.Load(context, &stream_);
    EXPECT_TRUE(status.ok()) << status;
    status = codec_.Encode({in_dev.data_dev(), dtype, shape_}, context, workspace(),
                           {blob_dev_.data_dev(), most}, stream_, sender_.staging.messages());
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(sender_.staging.Fetch(&stream_).ok());
    const std::vector<std::byte> got = Download(blob_dev_, poison.size(), &stream_);
    std::vector<std::byte> expected = blob;
    expected.resize(poison.size(), kPoison);
    EXPECT_EQ(FirstDifference(got, expected), -1) << "of " << result.bytes;
    status = sender_.staging.Remember(context, std::span(got).first(blob.size()));
    EXPECT_TRUE(status.ok()) << status;
    sender_.ExpectSameRecords();
    return blob;
  }

  // Receives on both, and compares: what comes out, what is remembered, or that it is refused; then
  // the result is false.
  bool Receive(const std::vector<std::byte>& blob, Dtype dtype, const std::vector<uint64_t>& ids) {
    std::vector<std::byte> out(shape_.elements() * BytesPerElement(dtype));
    const Status on_cpu =
        codec_.cpu().Decode(blob, ContextOf(ids, &receiver_.cpu),
                            Aligned(codec_, shape_, &scratch_), {out.data(), dtype, shape_});
    const Context context = ContextOf(ids, &receiver_.gpu);
    const std::vector<std::byte> none(4);
    EXPECT_TRUE(receiver_.staging.Load(context, &stream_).ok());
    EXPECT_TRUE(stream_.Copy(blob_dev_.data_dev(), blob.data(), blob.size()).ok());
    EXPECT_TRUE(stream_.Copy(fault_.data_dev(), none.data(), none.size()).ok());
    out.resize(out.size() + kGuard, kPoison);
    const std::vector<std::byte> poison(out.size(), kPoison);
    EXPECT_TRUE(stream_.Copy(out_dev_.data_dev(), poison.data(), poison.size()).ok());
    const Status status = codec_.Decode(
        std::span(blob).first(kBlobHeaderBytes), {blob_dev_.data_dev(), blob.size()}, workspace(),
        {out_dev_.data_dev(), dtype, shape_}, static_cast<uint32_t*>(fault_.data_dev()), stream_,
        receiver_.staging.messages());
    if (!status.ok()) {
      EXPECT_EQ(status.code(), on_cpu.code()) << status;
      return false;
    }
    EXPECT_TRUE(receiver_.staging.Fetch(&stream_).ok());
    const std::vector<std::byte> got = Download(out_dev_, out.size(), &stream_);
    const bool fault = FirstDifference(Download(fault_, 4, &stream_), none) != -1;
    EXPECT_EQ(fault, !on_cpu.ok()) << on_cpu;
    // The device finds whatever the host does.
    EXPECT_TRUE(fault || receiver_.staging.Check(blob).ok());
    if (fault) return false;
    EXPECT_EQ(FirstDifference(got, out), -1);
    EXPECT_TRUE(receiver_.staging.Remember(context, blob).ok());
    receiver_.ExpectSameRecords();
    return true;
  }

 private:
  DeviceSpan workspace() { return {workspace_.data_dev(), workspace_.size()}; }

  const CudaCodec codec_;
  const Shape shape_;
  Side sender_, receiver_;
  Stream stream_;
  std::vector<std::byte> scratch_;
  DeviceBuffer workspace_, blob_dev_, out_dev_, fault_;
};

std::string AnyAqsgd(std::mt19937_64* random) {
  return "aqsgd:bits=" + std::to_string(2 + (*random)() % 7);
}

// Also the same sample twice, and now and then none.
std::vector<uint64_t> AnyIds(std::mt19937_64* random, uint32_t samples, uint64_t of) {
  std::vector<uint64_t> ids;
  if ((*random)() % 8 == 0) return ids;
  for (uint32_t k = 0; k < samples; ++k) ids.push_back((*random)() % of);
  return ids;
}

// Mostly numbers, so that samples are remembered.
std::vector<std::byte> AnySamples(std::mt19937_64* random, Dtype dtype, const Shape& shape) {
  const uint64_t kind = (*random)() % 12;
  return Contents(random, dtype, shape.elements(), kind < kKinds ? kind : 0);
}

TEST(AqsgdOnGpu, BlobsActivationsAndRecordsAreTheCpus) {
  std::mt19937_64 random(20261122);
  for (int k = 0; k < 700 && !::testing::Test::HasFailure(); ++k) {
    const std::string text = AnyAqsgd(&random);
    Shape shape = AnyShape(&random);
    if (random() % 2 == 0) shape.channels = (shape.channels + 63) / 64 * 64;
    if (random() % 4 == 0) shape.tokens += 30;
    SCOPED_TRACE(text + " " + std::to_string(shape.samples) + " x " + std::to_string(shape.tokens) +
                 " x " + std::to_string(shape.channels));
    const uint64_t samples = shape.samples + random() % 2;
    Boundary boundary(text, shape, samples);
    for (int visit = 0; visit < 6 && !::testing::Test::HasFailure(); ++visit) {
      const Dtype dtype = AnyDtype(&random);
      const std::vector<uint64_t> ids = AnyIds(&random, shape.samples, samples);
      EXPECT_TRUE(boundary.Receive(boundary.Send(AnySamples(&random, dtype, shape), dtype, ids),
                                   AnyDtype(&random), ids));
    }
  }
}

TEST(AqsgdOnGpu, SeveralLoopsOfTheGrid) {
  std::mt19937_64 random(11);
  for (const uint32_t channels : {1601, 1600}) {
    const Shape shape{3, 1024, channels};
    Boundary boundary("aqsgd:bits=4", shape, 3);
    for (int visit = 0; visit < 2; ++visit) {
      const std::vector<std::byte> in = Contents(&random, Dtype::kBf16, shape.elements(), 0);
      EXPECT_TRUE(
          boundary.Receive(boundary.Send(in, Dtype::kBf16, {2, 0, 1}), Dtype::kF32, {2, 0, 1}));
    }
  }
}

TEST(AqsgdOnGpu, MoreSamplesThanABlockHasThreads) {
  std::mt19937_64 random(12);
  const Shape shape{700, 1, 9};
  Boundary boundary("aqsgd:bits=3", shape, 700);
  std::vector<uint64_t> ids;
  for (uint64_t k = 0; k < shape.samples; ++k) ids.push_back(699 - k);
  for (int visit = 0; visit < 4; ++visit) {
    // Some samples are wholes, others differences.
    const std::vector<std::byte> in = Contents(&random, Dtype::kF32, shape.elements(), visit % 2);
    EXPECT_TRUE(boundary.Receive(boundary.Send(in, Dtype::kF32, ids), Dtype::kF32, ids));
    for (uint64_t& id : ids) id = random() % 2 == 0 ? id : random() % shape.samples;
  }
}

TEST(AqsgdOnGpu, WhatTheCpuRefusesIsAFault) {
  std::mt19937_64 random(13);
  const Shape shape{3, 4, 70};
  const aqsgd::Layout layout = aqsgd::MakeLayout(shape, {});
  int refused = 0;
  for (int k = 0; k < 600 && !::testing::Test::HasFailure(); ++k) {
    Boundary boundary(AnyAqsgd(&random), shape, 4);
    std::vector<std::byte> blob;
    std::vector<uint64_t> ids;
    for (int visit = 0; visit < 2; ++visit) {
      if (visit > 0) {
        EXPECT_TRUE(boundary.Receive(blob, Dtype::kF32, ids));
      }
      ids = AnyIds(&random, shape.samples, 4);
      const std::vector<std::byte> in = Contents(&random, Dtype::kF32, shape.elements(), 0);
      blob = boundary.Send(in, Dtype::kF32, ids);
    }
    // Mostly where the payload says what it is, or its scales.
    if (k % 4 == 0) {
      blob[kBlobHeaderBytes + layout.kinds + random() % 3] = static_cast<std::byte>(random() % 5);
    } else {
      const size_t range = k % 4 == 1 ? blob.size() - kBlobHeaderBytes : layout.variable + 60;
      blob[kBlobHeaderBytes + random() % range] ^= static_cast<std::byte>(1u << random() % 8);
    }
    refused += boundary.Receive(blob, Dtype::kF32, ids) ? 0 : 1;
  }
  EXPECT_GT(refused, 150);
}

TEST(AqsgdOnGpu, AGraphEncodesAnew) {
  std::mt19937_64 random(14);
  Stream stream = Must(Stream::Create(Gpu()));
  const CudaCodec codec = Must(CudaCodec::Create("aqsgd"));
  const Shape shape{2, 20, 200};
  MessageStaging staging = Must(MessageStaging::Create(Gpu(), codec, shape));
  MemoryStore store(4, codec.cpu().MessageBytes(shape));
  const std::vector<uint64_t> ids = {1, 3};
  const Context context = ContextOf(ids, &store);
  ASSERT_TRUE(staging.Load(context, &stream).ok());
  DeviceBuffer in = Upload(Contents(&random, Dtype::kBf16, shape.elements(), 0), &stream);
  DeviceBuffer blob = Upload(std::vector<std::byte>(codec.MaxEncodedBytes(shape)), &stream);
  DeviceBuffer workspace = Upload(std::vector<std::byte>(codec.WorkspaceBytes(shape)), &stream);
  const auto encode = [&] {
    return codec.Encode({in.data_dev(), Dtype::kBf16, shape}, context,
                        {workspace.data_dev(), workspace.size()}, {blob.data_dev(), blob.size()},
                        stream, staging.messages());
  };
  const Graph graph = Must(Graph::Capture(stream, encode));
  MemoryStore of_cpu(4, codec.cpu().MessageBytes(shape));
  std::vector<std::byte> scratch = Scratch(codec, shape);
  for (int k = 0; k < 3; ++k) {
    const std::vector<std::byte> bytes = Contents(&random, Dtype::kBf16, shape.elements(), 0);
    ASSERT_TRUE(staging.Load(context, &stream).ok());
    ASSERT_TRUE(stream.Copy(in.data_dev(), bytes.data(), bytes.size()).ok());
    ASSERT_TRUE(graph.Launch(stream).ok());
    ASSERT_TRUE(staging.Fetch(&stream).ok());
    std::vector<std::byte> expected(codec.MaxEncodedBytes(shape));
    EncodeResult result;
    ASSERT_TRUE(codec.cpu()
                    .Encode({bytes.data(), Dtype::kBf16, shape}, ContextOf(ids, &of_cpu),
                            Aligned(codec, shape, &scratch), expected, &result)
                    .ok());
    expected.resize(result.bytes);
    EXPECT_EQ(FirstDifference(Download(blob, result.bytes, &stream), expected), -1);
    ASSERT_TRUE(staging.Remember(context, expected).ok());
  }
}

TEST(AqsgdOnGpu, WrongMessagesAreRefused) {
  const Shape shape{2, 3, 64};
  Stream stream = Must(Stream::Create(Gpu()));
  const CudaCodec tah = Must(CudaCodec::Create("tah"));
  const CudaCodec codec = Must(CudaCodec::Create("aqsgd"));
  EXPECT_TRUE(absl::IsFailedPrecondition(MessageStaging::Create(Gpu(), tah, shape).status()));
  MessageStaging staging = Must(MessageStaging::Create(Gpu(), codec, shape));
  MemoryStore store(2, codec.cpu().MessageBytes(shape));
  const std::vector<uint64_t> unknown = {0, 2};
  EXPECT_TRUE(absl::IsInvalidArgument(staging.Load(ContextOf(unknown, &store), &stream)));
  DeviceBuffer memory = Upload(std::vector<std::byte>(1 << 20), &stream);
  const DeviceSpan span{memory.data_dev(), memory.size()};
  const TensorView in{memory.data_dev(), Dtype::kF32, shape};
  const std::vector<uint64_t> ids = {0, 1};
  // Ids without messages, too few records, and a codec that has no use for them.
  EXPECT_TRUE(
      absl::IsInvalidArgument(codec.Encode(in, ContextOf(ids, &store), span, span, stream)));
  EXPECT_TRUE(absl::IsInvalidArgument(codec.Encode(in, ContextOf(ids, &store), span, span, stream,
                                                   {.entries = span, .records = {}})));
  EXPECT_TRUE(absl::IsInvalidArgument(
      tah.Encode(in, {}, span, span, stream, {.entries = span, .records = span})));
}

}  // namespace
}  // namespace longhaul::codec::cuda
