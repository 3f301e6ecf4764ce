// Codecs that are classes of Python: what runs, what is refused, and how a class or its process may
// fail. tests/conformance/codec holds such a codec against what all codecs promise.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/aligned_buffer.h"
#include "codec/blob.h"
#include "codec/python/factory.h"
#include "codec/python/host.h"
#include "codec/registry.h"
#include "tests/support/python_codecs.h"

namespace longhaul::codec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::shared_ptr<const Codec> Named(const std::string& text) {
  return ParseCodec(text).value();
}

std::string Refusal(const std::string& text) {
  return std::string(Message(ParseCodec(text).status()));
}

TEST(PythonCodecString, NamesAClassItsBitsAndItsArguments) {
  EXPECT_EQ(Named("python:my_codec:TopK")->name(), "python:my_codec:TopK,bits=32");
  EXPECT_EQ(Named("python:a.b:C,share=0.1,bits=4.50,k=x/y")->name(),
            "python:a.b:C,bits=4.5,k=x/y,share=0.1");
  EXPECT_EQ(Named(Named("python:a.b:C,share=0.1")->name())->name(),
            "python:a.b:C,bits=32,share=0.1");
  for (const char* bad : {"python", "python:", "python:module", "python:module:", "python::Class",
                          "python:mod ule:Class", "python:../x:Class", "python:m:C:D",
                          "python:m:C.D", "python:bits=4", "python:m:C,4", "python:m:C,k="}) {
    EXPECT_EQ(ParseCodec(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_THAT(Refusal("python:module"), HasSubstr("expected python:MODULE:CLASS"));
  for (const char* bits : {"0", "-1", "65", "nan", "x"}) {
    EXPECT_THAT(Refusal(fmt::format("python:m:C,bits={}", bits)),
                AllOf(HasSubstr("'bits' is out of range"), HasSubstr("above 0 to 64")));
  }
  EXPECT_THAT(Refusal("python:m:C,k=" + std::string(300, 'x')), HasSubstr("at most 255 bytes"));
  EXPECT_THAT(Refusal("predict/python:m:C"), HasSubstr("does not code its differences"));
}

TEST(PythonCodecString, BitsBoundTheBlobs) {
  const Shape shape{2, 3, 100};
  const auto codec = Named("python:m:C,bits=4.5");
  const size_t name = 2 + codec->name().size();
  EXPECT_EQ(codec->MaxEncodedBytes(shape), 64 + name + 338 + 256);  // 600 x 4.5 / 8 = 337.5
  EXPECT_EQ(codec->MinEncodedBytes(shape), 64 + name);
}

// One direction of an edge, with a process at each end.
class PythonCodec : public ::testing::Test {
 protected:
  void SetUp() override {
    if (host_ == nullptr) GTEST_SKIP() << "there is no Python with numpy";
  }

  std::shared_ptr<const Codec> MakeReady(const std::string& text) {
    StatusOr<std::shared_ptr<const Codec>> ready = python::Ready(host_, Named(text));
    EXPECT_TRUE(ready.ok()) << ready.status();
    return ready.ok() ? *ready : nullptr;
  }
  Status Encode(const Codec& codec, const Context& context = {}) {
    AlignedBuffer workspace(codec.WorkspaceBytes(kShape));
    blob_.assign(codec.MaxEncodedBytes(kShape), std::byte{});
    EncodeResult result;
    LH_RETURN_IF_ERROR(codec.Encode({values_.data(), Dtype::kF32, kShape}, context,
                                    workspace.span(), blob_, &result));
    blob_.resize(result.bytes);
    return absl::OkStatus();
  }
  Status Decode(const Codec& codec) {
    AlignedBuffer workspace(codec.WorkspaceBytes(kShape));
    return codec.Decode(blob_, {}, workspace.span(), {decoded_.data(), Dtype::kF32, kShape});
  }
  std::string EncodeFailure(const std::string& text) {
    const auto codec = MakeReady(text);
    const Status status = Encode(*codec);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_EQ(Encode(*codec).code(), status.code());
    return std::string(Message(status));
  }

  static constexpr Shape kShape{2, 3, 100};
  const python::Host* const host_ = longhaul::testing::PythonCodecHost();
  std::vector<float> values_ = [] {
    std::vector<float> values(kShape.elements());
    for (size_t k = 0; k < values.size(); ++k) values[k] = std::sin(0.7f * static_cast<float>(k));
    return values;
  }();
  std::vector<float> decoded_ = std::vector<float>(kShape.elements());
  std::vector<std::byte> blob_;
};

TEST_F(PythonCodec, RandomNumbersAreOfTheTensor) {
  const auto codec = MakeReady("python:python_codecs:Noisy,bits=8");
  ASSERT_TRUE(Encode(*codec).ok());
  const std::vector<std::byte> first = blob_;
  ASSERT_TRUE(Decode(*codec).ok());
  for (size_t k = 0; k < values_.size(); ++k) EXPECT_NEAR(decoded_[k], values_[k], 1.0 / 127);
  ASSERT_TRUE(Encode(*codec).ok());
  EXPECT_EQ(blob_, first);
  Context other;
  other.step = Step(1);
  ASSERT_TRUE(Encode(*codec, other).ok());
  EXPECT_NE(blob_, first);
}

// Noisy has 127 levels unless the codec string says another number.
TEST_F(PythonCodec, ArgumentsReachTheClass) {
  const auto codec = MakeReady("python:python_codecs:Noisy,bits=8,levels=3");
  ASSERT_TRUE(Encode(*codec).ok());
  ASSERT_TRUE(Decode(*codec).ok());
  for (const float value : decoded_) {
    EXPECT_NEAR(3 * value, std::round(3 * value), 0.01);
  }
  EXPECT_THAT(std::string(Message(
                  python::Ready(host_, Named("python:python_codecs:Noisy,lvels=3")).status())),
              AllOf(HasSubstr("TypeError"), HasSubstr("'lvels'")));
}

TEST_F(PythonCodec, EachCodecHasAnObjectOfItsOwn) {
  const std::string text = "python:python_codecs:Counting,bits=16";
  const auto sender = MakeReady(text), receiver = MakeReady(text);
  for (int k = 0; k < 3; ++k) {
    ASSERT_TRUE(Encode(*sender).ok());
    ASSERT_TRUE(Decode(*receiver).ok());
  }
  const Status again = Decode(*receiver);
  EXPECT_EQ(again.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(again)), HasSubstr("call 4 got the tensor of call 3"));
}

TEST_F(PythonCodec, OnlyPermittedModulesRun) {
  const auto refusal = [](const python::Host* host, const std::string& text) {
    const Status status = python::Ready(host, Named(text)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(Message(status));
  };
  EXPECT_THAT(
      refusal(nullptr, "python:os:abort"),
      AllOf(HasSubstr("python:os:abort"), HasSubstr("none may"), HasSubstr("--python-codec os")));
  for (const char* other : {"os", "python_codec", "python_codecs.more", "python_codecs2"}) {
    EXPECT_THAT(refusal(host_, fmt::format("python:{}:X", other)),
                HasSubstr("permitted: python_codecs"));
  }
  EXPECT_EQ(Encode(*Named("python:python_codecs:Planes")).code(),
            absl::StatusCode::kFailedPrecondition);
  const auto plain = Named("none");
  EXPECT_EQ(*python::Ready(nullptr, plain), plain);
}

TEST_F(PythonCodec, WhatCannotBeMadeIsNamed) {
  const auto failure = [this](const std::string& rest) {
    const Status status = python::Ready(host_, Named("python:python_codecs:" + rest)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return std::string(Message(status));
  };
  EXPECT_THAT(failure("Missing"), AllOf(HasSubstr("has no class Missing"), HasSubstr(".py")));
  EXPECT_THAT(failure("Encoder"), HasSubstr("has no method decode"));
  EXPECT_THAT(
      failure("Faulty,how=refuses"),
      AllOf(HasSubstr("ValueError: there is nothing to be made"), HasSubstr("python_codecs.py:")));
  const python::Host nowhere({.modules = {"no_such_module"},
                              .python = host_->options().python,
                              .main = host_->options().main});
  EXPECT_THAT(
      std::string(Message(python::Ready(&nowhere, Named("python:no_such_module:X")).status())),
      HasSubstr("ModuleNotFoundError"));
}

TEST_F(PythonCodec, FaultsOfAClassAreErrorsWithItsName) {
  EXPECT_THAT(EncodeFailure("python:python_codecs:Faulty,how=raises"),
              AllOf(HasSubstr("python:python_codecs:Faulty,bits=32,how=raises"),
                    HasSubstr("RuntimeError: no room for this"), HasSubstr("python_codecs.py:")));
  EXPECT_THAT(EncodeFailure("python:python_codecs:Faulty,how=number"),
              HasSubstr("encode returned int, not bytes"));
  EXPECT_THAT(EncodeFailure("python:python_codecs:Faulty,how=floods"),
              AllOf(HasSubstr("encode returned 4000 bytes, and at most 2656 are allowed"),
                    HasSubstr("more bits")));
  EXPECT_THAT(EncodeFailure("python:python_codecs:Faulty,how=dies"),
              HasSubstr("was killed by signal 9"));
}

TEST_F(PythonCodec, AClassThatNeverEndsIsEnded) {
  python::HostOptions options = host_->options();
  options.call_limit = absl::Milliseconds(50);
  const python::Host impatient(options);
  const auto codec = *python::Ready(&impatient, Named("python:python_codecs:Faulty,how=hangs"));
  const Status status = Encode(*codec);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("took longer than 50ms"));
}

TEST_F(PythonCodec, ABodyOfAnotherShapeIsRefused) {
  const auto good = MakeReady("python:python_codecs:Planes");
  ASSERT_TRUE(Encode(*good).ok());
  const auto codec = MakeReady("python:python_codecs:Faulty,how=shape");
  // Its own name, and any body.
  const std::string name = codec->name();
  blob_.assign(64 + 2 + name.size() + 10, std::byte{});
  const BlobHeader header{.codec = python::kId,
                          .source_dtype = Dtype::kF32,
                          .shape = kShape,
                          .payload_bytes = blob_.size() - 64,
                          .parameters = codec->kind().parameters};
  WriteBlobHeader(header, blob_);
  python::WriteName(name, &blob_[64]);
  const Status status = Decode(*codec);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("an array of (3,), not of (2, 3, 100)"));
  // It goes on with the next tensor.
  EXPECT_EQ(Decode(*codec).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace longhaul::codec
