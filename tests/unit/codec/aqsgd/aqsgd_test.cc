// aqsgd between two sides: what is sent, what both remember, and what is refused.
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "base/hash.h"
#include "codec/aqsgd/format.h"
#include "codec/aqsgd/reference.h"
#include "codec/messages/memory_store.h"
#include "tests/conformance/codec/codec_fixture.h"

namespace longhaul::codec::aqsgd {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// One side of a boundary.
struct Side {
  Side(const Codec& of, const Shape& tensors, uint64_t samples)
      : codec(of), shape(tensors), store(samples, of.MessageBytes(tensors)) {}

  Context ContextOf(const std::vector<uint64_t>& ids) {
    Context context;
    context.step = Step(1);
    context.sample_ids = ids;
    context.messages = &store;
    return context;
  }
  std::vector<std::byte> Send(const std::vector<float>& values, const std::vector<uint64_t>& ids,
                              uint64_t* nonfinite = nullptr) {
    return MustEncode(codec, Tensor(Dtype::kF32, shape, values).view(), ContextOf(ids), nonfinite);
  }
  StatusOr<std::vector<float>> Receive(std::span<const std::byte> blob,
                                       const std::vector<uint64_t>& ids) {
    const AlignedBytes workspace(codec.WorkspaceBytes(shape));
    Tensor out(Dtype::kF32, shape);
    LH_RETURN_IF_ERROR(codec.Decode(blob, ContextOf(ids), workspace.span(), out.mutable_view()));
    return out.values();
  }
  std::vector<std::byte> Record(uint64_t sample) const {
    const auto record = store.Read(sample);
    return {record.begin(), record.end()};
  }

  const Codec& codec;
  const Shape shape;
  MemoryStore store;
};

struct Pair {
  Pair(const std::string& text, const Shape& shape, uint64_t samples)
      : codec(MustParse(text)), sender(*codec, shape, samples), receiver(*codec, shape, samples) {}

  std::vector<float> Transfer(const std::vector<float>& values, const std::vector<uint64_t>& ids) {
    blob = sender.Send(values, ids);
    auto out = receiver.Receive(blob, ids);
    EXPECT_TRUE(out.ok()) << out.status();
    for (uint64_t sample = 0; sample < sender.store.samples(); ++sample) {
      EXPECT_EQ(sender.Record(sample), receiver.Record(sample)) << sample;
    }
    return out.ok() ? *std::move(out) : std::vector<float>();
  }

  std::unique_ptr<const Codec> codec;
  Side sender, receiver;
  std::vector<std::byte> blob;
};

std::vector<float> Moved(std::vector<float> values, uint32_t seed, float by) {
  const std::vector<float> change = Activations(values.size(), seed, by);
  for (size_t k = 0; k < values.size(); ++k) values[k] += change[k];
  return values;
}

TEST(Aqsgd, SecondVisitsAreSmallAndExacter) {
  const Shape shape{2, 16, 200};
  Pair pair("aqsgd:bits=4", shape, 8);
  const std::vector<float> x = Activations(shape.elements(), 1);
  const std::vector<float> first = pair.Transfer(x, {3, 5});
  EXPECT_LT(RelativeL2(x, first), 0.001);  // fp16
  EXPECT_GT(pair.blob.size(), shape.elements() * 2);
  const std::vector<float> y = Moved(x, 2, 0.05f);
  const std::vector<float> second = pair.Transfer(y, {3, 5});
  EXPECT_EQ(pair.blob.size(), pair.codec->MinEncodedBytes(shape));
  // 4 bits of the difference: far less than the difference itself.
  EXPECT_LT(RelativeL2(y, second), 0.25 * RelativeL2(y, x));
  // The same again comes ever nearer, to fp16's own error.
  double error = RelativeL2(y, second);
  for (int visit = 0; visit < 4; ++visit) error = RelativeL2(y, pair.Transfer(y, {3, 5}));
  EXPECT_LT(error, 0.001);
}

TEST(Aqsgd, SizesAreAsTheFormatHasThem) {
  const Shape gpt2_xl{1, 1024, 1600};
  const auto codec = MustParse("aqsgd:bits=4");
  const uint64_t fixed = kBlobHeaderBytes + 4 * 16;
  EXPECT_EQ(codec->MaxEncodedBytes(gpt2_xl), fixed + 2 * gpt2_xl.elements());
  EXPECT_EQ(codec->MinEncodedBytes(gpt2_xl), fixed + 2 * 1600 + gpt2_xl.elements() / 2);
  EXPECT_EQ(codec->MessageBytes(gpt2_xl), 16 + 2 * gpt2_xl.elements());
  EXPECT_EQ(MustParse("tah")->MessageBytes(gpt2_xl), 0u);
}

TEST(Aqsgd, BothSidesStayEqualWhateverComes) {
  const Shape shape{3, 4, 70};
  for (const std::string text : {"aqsgd:bits=2", "aqsgd:bits=4", "aqsgd:bits=8"}) {
    Pair pair(text, shape, 5);
    std::mt19937 generator(7);
    for (int visit = 0; visit < 60; ++visit) {
      // Also twice the same sample in a tensor, any magnitude, and now and then no number.
      std::vector<uint64_t> ids;
      for (int k = 0; k < 3; ++k) ids.push_back(generator() % 5);
      const float scale = std::ldexp(1.0f, static_cast<int>(generator() % 40) - 20);
      std::vector<float> x = Activations(shape.elements(), generator(), scale);
      if (generator() % 4 == 0) x[generator() % x.size()] = kNan;
      if (generator() % 8 == 0) x[generator() % x.size()] = 3e38f;
      pair.Transfer(x, ids);
    }
  }
}

TEST(Aqsgd, NonFiniteValuesComeOutAsNanAndAreNotRemembered) {
  const Shape shape{2, 3, 70};
  Pair pair("aqsgd:bits=4", shape, 2);
  const std::vector<float> x = Activations(shape.elements(), 1);
  pair.Transfer(x, {0, 1});
  const std::vector<std::byte> before = pair.sender.Record(0);
  for (const float bad : {kNan, kInf, -kInf}) {
    std::vector<float> broken = x;
    broken[5] = bad;
    uint64_t nonfinite = 0;
    const auto blob = pair.sender.Send(broken, {0, 1}, &nonfinite);
    EXPECT_EQ(nonfinite, 1u);
    const auto out = pair.receiver.Receive(blob, {0, 1});
    ASSERT_TRUE(out.ok()) << out.status();
    for (size_t k = 0; k < out->size(); ++k) EXPECT_EQ(std::isnan((*out)[k]), k == 5) << k;
    EXPECT_EQ(pair.sender.Record(0), before);
  }
  EXPECT_LT(RelativeL2(x, pair.Transfer(x, {0, 1})), 0.001);
  EXPECT_EQ(pair.blob.size(), pair.codec->MinEncodedBytes(shape));
}

TEST(Aqsgd, ARecordThatNoLongerSuitsIsReplaced) {
  const Shape shape{1, 4, 64};
  for (const float factor : {1e6f, 1e-6f, 3e33f, 1e-33f}) {
    Pair pair("aqsgd:bits=4", shape, 1);
    std::vector<float> x = Activations(shape.elements(), 1);
    pair.Transfer(x, {0});
    for (float& value : x) value *= factor;
    EXPECT_LT(RelativeL2(x, pair.Transfer(x, {0})), 0.001) << factor;
    EXPECT_GT(pair.blob.size(), shape.elements() * 2);
    // And is good from then on.
    EXPECT_LT(RelativeL2(x, pair.Transfer(x, {0})), 0.001) << factor;
    EXPECT_EQ(pair.blob.size(), pair.codec->MinEncodedBytes(shape));
  }
}

TEST(Aqsgd, PowersOfTwoChangeNothingButTheExponent) {
  const Shape shape{1, 4, 100};
  const std::vector<float> x = Activations(shape.elements(), 1);
  const std::vector<float> y = Moved(x, 2, 0.1f);
  Pair base("aqsgd:bits=3", shape, 1);
  base.Transfer(x, {0});
  const std::vector<float> expected = base.Transfer(y, {0});
  for (const int power : {-100, -17, 3, 60, 100}) {
    const auto scaled = [power](std::vector<float> values) {
      for (float& value : values) value = std::ldexp(value, power);
      return values;
    };
    Pair pair("aqsgd:bits=3", shape, 1);
    pair.Transfer(scaled(x), {0});
    EXPECT_EQ(pair.Transfer(scaled(y), {0}), scaled(expected)) << power;
  }
}

TEST(Aqsgd, WithoutIdsNothingIsRemembered) {
  const Shape shape{1, 4, 64};
  Pair pair("aqsgd:bits=4", shape, 1);
  const std::vector<float> x = Activations(shape.elements(), 1);
  EXPECT_LT(RelativeL2(x, pair.Transfer(x, {})), 0.001);
  EXPECT_TRUE(pair.sender.Record(0).empty());
  pair.Transfer(x, {0});
  const auto record = pair.sender.Record(0);
  pair.Transfer(Moved(x, 2, 0.1f), {});
  EXPECT_EQ(pair.sender.Record(0), record);
}

TEST(Aqsgd, FollowsTheDoublePrecisionReference) {
  std::mt19937 generator(3);
  for (const uint32_t bits : {2u, 4u, 5u, 8u}) {
    for (const Shape shape : {Shape{1, 5, 64}, Shape{2, 3, 100}, Shape{3, 2, 7}}) {
      const std::string text = "aqsgd:bits=" + std::to_string(bits);
      Pair pair(text, shape, 4);
      std::map<uint64_t, ReferenceMessage> remembered;
      for (int visit = 0; visit < 12; ++visit) {
        std::vector<uint64_t> ids;
        for (uint32_t k = 0; k < shape.samples; ++k) ids.push_back((k + generator() % 2) % 4);
        std::sort(ids.begin(), ids.end());
        ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
        if (ids.size() != shape.samples) continue;
        const float scale = visit % 5 == 4 ? 1e4f : 1.0f;
        std::vector<float> x = Activations(shape.elements(), generator(), scale);
        if (visit % 4 == 3) x[1] = kInf;
        std::vector<std::optional<ReferenceMessage>> messages;
        for (const uint64_t id : ids) {
          const auto it = remembered.find(id);
          messages.push_back(it == remembered.end() ? std::nullopt : std::optional(it->second));
        }
        const ReferenceResult expected = Reference(x, shape, {bits}, true, messages);
        const std::vector<float> out = pair.Transfer(x, ids);
        const ReferenceResult got = Unpack(pair.blob, shape, {bits});
        EXPECT_EQ(got.scales, expected.scales);
        const size_t size = x.size() / shape.samples;
        for (size_t b = 0; b < ids.size(); ++b) {
          const ReferenceSample& sample = expected.samples[b];
          EXPECT_EQ(got.samples[b].kind, sample.kind);
          EXPECT_EQ(got.samples[b].exponent, sample.exponent);
          EXPECT_EQ(got.samples[b].codes, sample.codes);
          for (size_t k = 0; k < size; ++k) {
            const float decoded = out[b * size + k];
            if (std::isnan(sample.decoded[k])) {
              EXPECT_TRUE(std::isnan(decoded));
            } else {
              EXPECT_EQ(decoded, static_cast<float>(sample.decoded[k]));
            }
          }
          if (sample.kind != Kind::kTransient) remembered[ids[b]] = sample.message;
        }
      }
    }
  }
}

TEST(Aqsgd, RefusesWhatItsOwnStateContradicts) {
  const Shape shape{1, 4, 64};
  Pair pair("aqsgd:bits=4", shape, 3);
  const std::vector<float> x = Activations(shape.elements(), 1);
  const auto refused = [&](Side& side, std::span<const std::byte> blob, uint64_t id,
                           const std::string& sentence) {
    const std::vector<std::byte> before = side.Record(id);
    const auto out = side.Receive(blob, {id});
    EXPECT_EQ(out.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(Message(out.status()).find(sentence), std::string_view::npos) << out.status();
    EXPECT_EQ(side.Record(id), before);
  };
  const auto first = pair.sender.Send(x, {0});
  refused(pair.receiver, first, 1, "expected sample 1");
  ASSERT_TRUE(pair.receiver.Receive(first, {0}).ok());
  refused(pair.receiver, first, 0, "the sender has none");
  const auto second = pair.sender.Send(Moved(x, 2, 0.1f), {0});
  Side fresh(*pair.codec, shape, 3);
  refused(fresh, second, 0, "this side has none");
  ASSERT_TRUE(pair.receiver.Receive(second, {0}).ok());
  refused(pair.receiver, second, 0, "messages of sample 0 differ");
  // Without ids: nothing that has them.
  EXPECT_FALSE(pair.receiver.Receive(second, {}).ok());

  const auto changed = [](std::vector<std::byte> blob, size_t at, uint8_t value) {
    blob[kBlobHeaderBytes + at] = static_cast<std::byte>(value);
    return blob;
  };
  const auto third = pair.sender.Send(Moved(x, 3, 0.1f), {0});
  const Layout layout = MakeLayout(shape, {4});
  refused(pair.receiver, changed(third, layout.kinds, 9), 0, "");
  refused(pair.receiver, changed(third, layout.kinds, 2), 0, "");
  refused(pair.receiver, changed(third, layout.exponents, 41), 0, "exponent");
  refused(pair.receiver, changed(third, layout.variable + 1, 0x7c), 0, "scale");
  refused(pair.receiver, changed(third, layout.variable + 1, 0x80), 0, "scale");
  const auto whole = fresh.Send(x, {1});
  refused(pair.receiver, changed(whole, layout.variable + 1, 0x7c), 1, "not finite");
  EXPECT_TRUE(pair.receiver.Receive(third, {0}).ok());
  EXPECT_TRUE(pair.receiver.Receive(whole, {1}).ok());
}

TEST(Aqsgd, RefusesIdsThatDoNotFit) {
  const Shape shape{2, 4, 64};
  const auto codec = MustParse("aqsgd");
  Side side(*codec, shape, 3);
  const Tensor in(Dtype::kF32, shape, Activations(shape.elements(), 1));
  std::vector<std::byte> blob(codec->MaxEncodedBytes(shape));
  const AlignedBytes workspace(codec->WorkspaceBytes(shape));
  EncodeResult result;
  const auto refused = [&](const Context& context) {
    EXPECT_EQ(codec->Encode(in.view(), context, workspace.span(), blob, &result).code(),
              absl::StatusCode::kInvalidArgument);
  };
  const std::vector<uint64_t> ids = {0, 1}, too_many = {0, 1, 2}, too_large = {0, 3};
  refused(side.ContextOf(too_many));
  refused(side.ContextOf(too_large));
  Context context = side.ContextOf(ids);
  context.messages = nullptr;
  refused(context);
  MemoryStore other(3, codec->MessageBytes({2, 4, 65}));
  context.messages = &other;
  refused(context);
}

}  // namespace
}  // namespace longhaul::codec::aqsgd
