// predict's kernels against the CPU's, over tensors of the same tokens: the same blobs, activations
// and tables, and the same blobs refused.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "base/cuda/graph.h"
#include "codec/cuda/device_tables.h"
#include "tests/property/codec/predict_cases.h"
#include "tests/unit/codec/cuda/gpu_contents.h"

namespace longhaul::codec::cuda {
namespace {

using ::longhaul::cuda::Graph;

// Both sides of a boundary, on both machines.
class PredictBoundary {
 public:
  explicit PredictBoundary(const PredictCase& of)
      : codec_(Must(CudaCodec::Create(of.codec))),
        shape_(of.shape),
        on_cpu_(codec_.cpu(), of.vocabulary, of.shape),
        received_(codec_.cpu(), of.vocabulary, of.shape),
        stream_(Must(Stream::Create(Gpu()))),
        sender_(NewTables()),
        receiver_(NewTables()),
        scratch_(Scratch(codec_, shape_)),
        workspace_(
            Upload(std::vector<std::byte>(codec_.WorkspaceBytes(shape_), kPoison), &stream_)),
        blob_dev_(Must(DeviceBuffer::Create(Gpu(), codec_.MaxEncodedBytes(shape_) + kGuard))),
        out_dev_(Must(DeviceBuffer::Create(Gpu(), 4 * shape_.elements() + kGuard))),
        fault_(Must(DeviceBuffer::Create(Gpu(), 4))) {}

  // Sends on both, and compares.
  std::vector<std::byte> Send(const std::vector<std::byte>& in, Dtype dtype,
                              const std::vector<uint32_t>& ids, bool learns) {
    const TensorView view{in.data(), dtype, shape_};
    std::vector<std::byte> blob = on_cpu_.Send(view, ids, learns);
    const DeviceBuffer in_dev = Upload(in, &stream_);
    const size_t most = codec_.MaxEncodedBytes(shape_);
    const std::vector<std::byte> poison(most + kGuard, kPoison);
    EXPECT_TRUE(stream_.Copy(blob_dev_.data_dev(), poison.data(), poison.size()).ok());
    EXPECT_TRUE(sender_.Load(ContextOf(ids, learns), &stream_).ok());
    const Status status = codec_.Encode({in_dev.data_dev(), dtype, shape_}, {}, workspace(),
                                        {blob_dev_.data_dev(), most}, stream_, {}, &sender_);
    EXPECT_TRUE(status.ok()) << status;
    const std::vector<std::byte> got = Download(blob_dev_, poison.size(), &stream_);
    EXPECT_EQ(FirstDifference(std::span(got).first(blob.size()), blob), -1) << "of " << blob.size();
    EXPECT_EQ(got.back(), kPoison);
    ExpectSame(sender_, on_cpu_.tables);
    return blob;
  }

  // Receives on both, and compares: what comes out, what is learned, or that it is refused; then
  // the result is false. `ids`: those that the blob must have.
  bool Receive(const std::vector<std::byte>& blob, Dtype dtype, bool learns,
               const std::vector<uint32_t>& ids = {}) {
    const StatusOr<Tensor> expected = received_.Receive(blob, dtype, learns, ids);
    const std::vector<std::byte> none(4);
    EXPECT_TRUE(receiver_.Load(ContextOf(ids, learns), &stream_).ok());
    EXPECT_TRUE(stream_.Copy(blob_dev_.data_dev(), blob.data(), blob.size()).ok());
    EXPECT_TRUE(stream_.Copy(fault_.data_dev(), none.data(), none.size()).ok());
    const size_t bytes = shape_.elements() * BytesPerElement(dtype);
    const std::vector<std::byte> poison(bytes + kGuard, kPoison);
    EXPECT_TRUE(stream_.Copy(out_dev_.data_dev(), poison.data(), poison.size()).ok());
    const Status status =
        codec_.Decode(std::span(blob).first(kBlobHeaderBytes), {blob_dev_.data_dev(), blob.size()},
                      workspace(), {out_dev_.data_dev(), dtype, shape_},
                      static_cast<uint32_t*>(fault_.data_dev()), stream_, {}, &receiver_);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), expected.status().code()) << status;
      ExpectSame(receiver_, received_.tables);
      return false;
    }
    const std::vector<std::byte> got = Download(out_dev_, poison.size(), &stream_);
    const bool fault = FirstDifference(Download(fault_, 4, &stream_), none) != -1;
    EXPECT_EQ(fault, !expected.ok()) << expected.status();
    EXPECT_TRUE(std::all_of(got.begin() + static_cast<long>(bytes), got.end(),
                            [](std::byte byte) { return byte == kPoison; }));
    ExpectSame(receiver_, received_.tables);
    if (fault || !expected.ok()) return false;
    const std::span out(static_cast<const std::byte*>(expected->view().data), bytes);
    EXPECT_EQ(FirstDifference(std::span(got).first(bytes), out), -1);
    return true;
  }

 private:
  DeviceTables NewTables() {
    return Must(DeviceTables::Create(&stream_, on_cpu_.tables.shape(),
                                     uint64_t{shape_.samples} * shape_.tokens));
  }
  static Context ContextOf(const std::vector<uint32_t>& ids, bool learns) {
    Context context;
    context.token_ids = ids;
    context.learns = learns;
    return context;
  }
  void ExpectSame(const DeviceTables& tables, const predict::Tables& expected) {
    predict::Tables saved = *predict::Tables::Create(expected.shape());
    EXPECT_TRUE(tables.Save(&stream_, &saved).ok());
    EXPECT_EQ(saved.check(), expected.check());
    EXPECT_TRUE(SameTables(saved, expected));
  }
  DeviceSpan workspace() { return {workspace_.data_dev(), workspace_.size()}; }

  const CudaCodec codec_;
  const Shape shape_;
  PredictSide on_cpu_, received_;
  Stream stream_;
  DeviceTables sender_, receiver_;
  std::vector<std::byte> scratch_;
  DeviceBuffer workspace_, blob_dev_, out_dev_, fault_;
};

std::vector<std::byte> AnyContents(std::mt19937* generator, Dtype dtype, uint64_t elements) {
  std::mt19937_64 random((*generator)());
  const uint64_t kind = random() % (2 * kKinds);
  return Contents(&random, dtype, elements, kind < kKinds ? kind : 7);
}

Dtype AnyDtypeOf(std::mt19937* generator) {
  return static_cast<Dtype>(1 + Below(generator, 3));
}

TEST(PredictOnGpu, TenThousandTensorsAreTheCpus) {
  std::mt19937 generator(20261126);
  for (int boundary = 0; boundary < 2500 && !::testing::Test::HasFailure(); ++boundary) {
    const PredictCase of = RandomPredictCase(&generator);
    SCOPED_TRACE(fmt::format("boundary {}: {} {} x {} x {}, {} ids", boundary, of.codec,
                             of.shape.samples, of.shape.tokens, of.shape.channels, of.vocabulary));
    PredictBoundary both(of);
    for (int visit = 0; visit < 4 && !::testing::Test::HasFailure(); ++visit) {
      const Dtype dtype = AnyDtypeOf(&generator);
      const std::vector<uint32_t> ids = RandomIds(&generator, of);
      const bool learns = Below(&generator, 6) != 0;
      const std::vector<std::byte> blob =
          both.Send(AnyContents(&generator, dtype, of.shape.elements()), dtype, ids, learns);
      EXPECT_TRUE(both.Receive(blob, AnyDtypeOf(&generator), learns,
                               Below(&generator, 2) == 0 ? ids : std::vector<uint32_t>()));
    }
  }
}

// Rows with more tokens than a block lists at a time, more channels than a block has, no ids twice.
TEST(PredictOnGpu, LargeTensors) {
  std::mt19937 generator(11);
  for (const char* codec : {"predict/gauss", "predict:pairs=0/fixed:bits=3", "predict/zip"}) {
    for (const uint32_t channels : {1600, 1601}) {
      const PredictCase of{codec, {2, 512, channels}, 5000};
      PredictBoundary both(of);
      for (int visit = 0; visit < 4; ++visit) {
        std::vector<uint32_t> ids(1024, 7);
        if (visit == 1) {
          for (uint32_t& id : ids) id = Below(&generator, 5000);
        }
        if (visit == 2) {
          for (uint32_t k = 0; k < 1024; ++k) ids[k] = 4999 - k;
        }
        std::mt19937_64 random(generator());
        const std::vector<std::byte> in = Contents(&random, Dtype::kBf16, of.shape.elements(), 7);
        EXPECT_TRUE(both.Receive(both.Send(in, Dtype::kBf16, ids, true), Dtype::kF32, true));
      }
    }
  }
}

TEST(PredictOnGpu, WhatTheCpuRefusesIsAFault) {
  std::mt19937 generator(13);
  int refused = 0;
  for (int k = 0; k < 800 && !::testing::Test::HasFailure(); ++k) {
    const PredictCase of = RandomPredictCase(&generator);
    SCOPED_TRACE(fmt::format("{}: {} {} x {} x {}", k, of.codec, of.shape.samples, of.shape.tokens,
                             of.shape.channels));
    PredictBoundary both(of);
    std::vector<std::byte> blob;
    for (int visit = 0; visit < 2; ++visit) {
      if (visit > 0) {
        EXPECT_TRUE(both.Receive(blob, Dtype::kF32, true));
      }
      const std::vector<uint32_t> ids = RandomIds(&generator, of);
      std::mt19937_64 random(generator());
      const std::vector<std::byte> in = Contents(&random, Dtype::kF32, of.shape.elements(), 7);
      blob = both.Send(in, Dtype::kF32, ids, true);
    }
    // Mostly where the payload says what it is; never in the count of tiles within.
    const uint64_t tokens = uint64_t{of.shape.samples} * of.shape.tokens;
    const size_t range = k % 4 == 3 ? blob.size() - kBlobHeaderBytes : 16 + 2 * tokens + 40;
    const size_t place = kBlobHeaderBytes + generator() % range;
    const size_t within =
        kBlobHeaderBytes + predict::OtherOffset(of.shape, predict::BytesOfId(of.vocabulary));
    if (place >= within + 48 && place < within + 56) continue;
    blob[place] ^= static_cast<std::byte>(1u << generator() % 8);
    const bool learns = Below(&generator, 8) != 0;
    refused += both.Receive(blob, Dtype::kF32, learns) ? 0 : 1;
  }
  EXPECT_GT(refused, 300);
}

TEST(PredictOnGpu, AGraphLearnsAtEveryReplay) {
  std::mt19937 generator(14);
  Stream stream = Must(Stream::Create(Gpu()));
  const CudaCodec codec = Must(CudaCodec::Create("predict:pairs=64/gauss"));
  const Shape shape{2, 20, 200};
  PredictSide on_cpu(codec.cpu(), 30, shape);
  DeviceTables tables = Must(DeviceTables::Create(&stream, on_cpu.tables.shape(), 40));
  DeviceBuffer in = Upload(std::vector<std::byte>(shape.elements() * 2), &stream);
  DeviceBuffer blob = Upload(std::vector<std::byte>(codec.MaxEncodedBytes(shape)), &stream);
  DeviceBuffer workspace = Upload(std::vector<std::byte>(codec.WorkspaceBytes(shape)), &stream);
  std::vector<uint32_t> ids(40, 3);
  Context context;
  context.token_ids = ids;
  context.learns = true;
  ASSERT_TRUE(tables.Load(context, &stream).ok());
  const Graph graph = Must(Graph::Capture(stream, [&] {
    return codec.Encode({in.data_dev(), Dtype::kBf16, shape}, {},
                        {workspace.data_dev(), workspace.size()}, {blob.data_dev(), blob.size()},
                        stream, {}, &tables);
  }));
  for (int k = 0; k < 4; ++k) {
    for (uint32_t& id : ids) id = Below(&generator, 30);
    std::mt19937_64 random(generator());
    const std::vector<std::byte> bytes = Contents(&random, Dtype::kBf16, shape.elements(), 7);
    ASSERT_TRUE(stream.Copy(in.data_dev(), bytes.data(), bytes.size()).ok());
    ASSERT_TRUE(tables.Load(context, &stream).ok());
    ASSERT_TRUE(graph.Launch(stream).ok());
    const std::vector<std::byte> expected =
        on_cpu.Send({bytes.data(), Dtype::kBf16, shape}, ids, true);
    EXPECT_EQ(FirstDifference(Download(blob, expected.size(), &stream), expected), -1);
  }
}

TEST(PredictOnGpu, IdsMayBeOnTheDeviceAlready) {
  std::mt19937 generator(16);
  Stream stream = Must(Stream::Create(Gpu()));
  const CudaCodec codec = Must(CudaCodec::Create("predict:pairs=64/gauss"));
  const Shape shape{2, 20, 200};
  PredictSide on_cpu(codec.cpu(), 30, shape);
  DeviceTables tables = Must(DeviceTables::Create(&stream, on_cpu.tables.shape(), 40));
  DeviceBuffer blob = Upload(std::vector<std::byte>(codec.MaxEncodedBytes(shape)), &stream);
  DeviceBuffer workspace = Upload(std::vector<std::byte>(codec.WorkspaceBytes(shape)), &stream);
  for (int k = 0; k < 3; ++k) {
    std::vector<uint32_t> ids(40);
    for (uint32_t& id : ids) id = Below(&generator, 30);
    const auto bytes_of_ids = std::as_bytes(std::span(ids));
    const DeviceBuffer ids_dev = Upload({bytes_of_ids.begin(), bytes_of_ids.end()}, &stream);
    std::mt19937_64 random(generator());
    const std::vector<std::byte> bytes = Contents(&random, Dtype::kBf16, shape.elements(), 7);
    const DeviceBuffer in = Upload(bytes, &stream);
    const auto* const there = static_cast<const uint32_t*>(in.data_dev());
    EXPECT_TRUE(absl::IsInvalidArgument(tables.LoadFromDevice(there, 41, true, &stream)));
    ASSERT_TRUE(
        tables.LoadFromDevice(static_cast<const uint32_t*>(ids_dev.data_dev()), 40, k != 1, &stream)
            .ok());
    ASSERT_TRUE(codec
                    .Encode({in.data_dev(), Dtype::kBf16, shape}, {},
                            {workspace.data_dev(), workspace.size()},
                            {blob.data_dev(), blob.size()}, stream, {}, &tables)
                    .ok());
    const std::vector<std::byte> expected =
        on_cpu.Send({bytes.data(), Dtype::kBf16, shape}, ids, k != 1);
    EXPECT_EQ(FirstDifference(Download(blob, expected.size(), &stream), expected), -1);
  }
}

TEST(PredictOnGpu, TablesAreRestored) {
  std::mt19937 generator(15);
  Stream stream = Must(Stream::Create(Gpu()));
  const predict::TablesShape shape{.vocabulary = 9, .channels = 70, .pairs = 4};
  predict::Tables tables = *predict::Tables::Create(shape);
  for (std::byte& byte : tables.memory()) byte = static_cast<std::byte>(generator());
  tables.set_check(77);
  DeviceTables on_device = Must(DeviceTables::Create(&stream, shape, 8));
  ASSERT_TRUE(on_device.Restore(tables, &stream).ok());
  predict::Tables saved = *predict::Tables::Create(shape);
  ASSERT_TRUE(on_device.Save(&stream, &saved).ok());
  EXPECT_TRUE(SameTables(saved, tables));
}

TEST(PredictOnGpu, WrongTablesAreRefused) {
  const Shape shape{2, 3, 64};
  Stream stream = Must(Stream::Create(Gpu()));
  const CudaCodec tah = Must(CudaCodec::Create("tah"));
  const CudaCodec codec = Must(CudaCodec::Create("predict:pairs=4/tah"));
  DeviceBuffer memory = Upload(std::vector<std::byte>(1 << 20), &stream);
  const DeviceSpan span{memory.data_dev(), memory.size()};
  const TensorView in{memory.data_dev(), Dtype::kF32, shape};
  const std::vector<uint32_t> ids(6, 1);
  Context context;
  context.token_ids = ids;
  DeviceTables tables = Must(DeviceTables::Create(&stream, {5, 64, 4}, 6));
  DeviceTables narrow = Must(DeviceTables::Create(&stream, {5, 63, 4}, 6));
  // Ids without tables, tables without ids, of other channels, and a codec that has no use for
  // them.
  EXPECT_TRUE(absl::IsInvalidArgument(codec.Encode(in, context, span, span, stream)));
  EXPECT_TRUE(absl::IsInvalidArgument(codec.Encode(in, {}, span, span, stream, {}, &tables)));
  ASSERT_TRUE(narrow.Load(context, &stream).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(codec.Encode(in, context, span, span, stream, {}, &narrow)));
  EXPECT_TRUE(absl::IsInvalidArgument(tah.Encode(in, {}, span, span, stream, {}, &tables)));
  const std::vector<uint32_t> unknown(6, 5), many(7, 1);
  context.token_ids = unknown;
  EXPECT_TRUE(absl::IsInvalidArgument(tables.Load(context, &stream)));
  context.token_ids = many;
  EXPECT_TRUE(absl::IsInvalidArgument(tables.Load(context, &stream)));
}

}  // namespace
}  // namespace longhaul::codec::cuda
