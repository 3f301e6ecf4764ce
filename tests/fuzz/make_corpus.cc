// Writes the seeds of the fuzz targets whose input is binary, by the encoders themselves:
// `fuzz_corpus tests/fuzz/corpus`. What is text is kept as it is. Called again after a format has
// changed; fuzz_smoke_test says which seeds their target no longer takes.
#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "codec/messages/memory_store.h"
#include "codec/predict/tables.h"
#include "codec/tool/npy.h"
#include "longhaul/v1/plan.pb.h"
#include "proto/wire/chunk_word.h"
#include "proto/wire/link_header.h"
#include "proto/wire/tensor_header.h"
#include "run/tokens/pieces.h"
#include "run/tokens/token_file.h"
#include "tests/conformance/codec/codec_fixture.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/replica_seeds.h"
#include "transport/collective/core/message.h"
#include "transport/collective/host/header.h"
#include "transport/p2p/core/hello.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/shard_coding.h"

namespace longhaul {
namespace {

void PutBlobs(const Corpus& corpus) {
  using namespace codec;  // NOLINT(google-build-using-namespace)
  for (const std::string& text : AllCodecs()) {
    std::string name = text;
    for (char& c : name) {
      if (c == ':' || c == ',' || c == '/') c = '_';
    }
    const auto codec = MustParse(text);
    const Shape shape{1, 2, 70};
    const Tensor in(Dtype::kF32, shape, Activations(shape.elements(), 4));
    corpus.Put("codec_decode", name, MustEncode(*codec, in.view()));
  }
  corpus.Put("codec_decode", "empty",
             MustEncode(*MustParse("tah"), Tensor(Dtype::kF32, {0, 1, 1}).view()));
  // Differences to the messages of zeros that the target has.
  const auto codec = MustParse("aqsgd");
  for (const Shape shape : {Shape{1, 2, 70}, Shape{2, 1, 129}}) {
    MemoryStore store(2, codec->MessageBytes(shape));
    const std::vector<uint64_t> ids = {1, 0};
    Context context;
    context.sample_ids = std::span(ids).first(shape.samples);
    context.messages = &store;
    const std::vector<float> zeros(shape.elements());
    MustEncode(*codec, Tensor(Dtype::kF32, shape, zeros).view(), context);
    const Tensor in(Dtype::kF32, shape, Activations(shape.elements(), 4, 40));
    corpus.Put("codec_decode", fmt::format("differences_{}", shape.samples),
               MustEncode(*codec, in.view(), context));
  }
}

// Predictions of tokens that the target's tables know, before they have learned.
void PutPredictions(const Corpus& corpus) {
  using namespace codec;  // NOLINT(google-build-using-namespace)
  const Shape shape{2, 3, 40};
  const std::vector<uint32_t> ids = {1, 39, 1, 0, 0, 7};
  for (const bool learns : {false, true}) {
    for (const std::string other : {"none", "gauss"}) {
      const auto codec = MustParse("predict:pairs=64/" + other);
      auto tables = predict::Tables::Create({.vocabulary = 40, .channels = 40, .pairs = 64});
      Corpus::Must(tables.status());
      Context context;
      context.tables = &*tables;
      context.token_ids = ids;
      context.learns = learns;
      const Tensor in(Dtype::kF32, shape, Activations(shape.elements(), 4));
      corpus.Put("codec_decode", fmt::format("predict_{}_{}", other, learns ? "learns" : "not"),
                 MustEncode(*codec, in.view(), context));
    }
  }
}

void PutArrays(const Corpus& corpus) {
  using codec::Dtype;
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBf16}) {
    auto array = codec::MakeArray(dtype, {1, 2, 3});
    Corpus::Must(array.status());
    for (std::byte& byte : array->data.span()) byte = std::byte{1};
    corpus.Put("codec_npy", std::string(ToString(dtype)), codec::FormatNpy(array->view()));
  }
}

void PutReplicas(const Corpus& corpus) {
  // Two replicas, each form of gradients and of parameters.
  for (const uint8_t forms : {0, 2, 4, 6, 8, 12, 16, 20, 22}) {
    corpus.Put("replicas_message", fmt::format("step_{}", forms), replicas::ReplicaSeed(forms));
  }
}

void PutFrames(const Corpus& corpus) {
  using namespace transport::internal;  // NOLINT(google-build-using-namespace)
  std::array<std::byte, wire::kTensorHeaderBytes> header;
  wire::EncodeTensorHeader({.shards = 3, .slices = 3, .blob_bytes = 1000, .chunks = 5}, header);
  corpus.Put("wire_tensor_header", "chunk", header);
  wire::EncodeTensorHeader({.kind = wire::TensorKind::kStepControl, .step = Step(9)}, header);
  corpus.Put("wire_tensor_header", "step", header);

  corpus.Put("wire_chunk_word", "ask",
             wire::EncodeChunkWord(wire::ChunkAsk{
                 .request = 7, .validation = true, .source = 1, .shard = 12, .chunk = 300}));
  corpus.Put("wire_chunk_word", "ask_mask",
             wire::EncodeChunkWord(wire::ChunkAsk{.mask = true, .chunk = 1}));
  corpus.Put("wire_chunk_word", "not_here", wire::EncodeChunkWord(wire::ChunkNotHere{7}));
  corpus.Put("wire_chunk_word", "refused_piece", wire::EncodeChunkPieceHeader(7) + "tokens");

  LinkHello hello{.stage = 1, .version_min = 1, .version_max = 9};
  hello.key.run = RunId("demo-ab12cd");
  hello.key.stamp = Stamp(3);
  const std::pair<const char*, std::vector<std::byte>> payloads[] = {
      {"hello", EncodeHello(hello)},
      {"welcome", EncodeWelcome({.stage = 1, .version = 1})},
      {"refusal", EncodeRefusal({.retry = true, .reason = "not expected there"})}};
  for (const auto& [name, payload] : payloads) {
    corpus.Put("transport_link", name, payload);
    std::vector<std::byte> frame(wire::kLinkHeaderBytes);
    wire::EncodeLinkHeader({.kind = wire::LinkKind::kHello}, payload, {},
                           std::span<std::byte, wire::kLinkHeaderBytes>(frame));
    frame.insert(frame.end(), payload.begin(), payload.end());
    corpus.Put("transport_link", std::string(name) + "_frame", frame);
  }
}

void PutFiles(const Corpus& corpus) {
  const std::string folder = std::filesystem::temp_directory_path() / "longhaul-corpus";
  Corpus::Must(MakeDirectories(folder));
  Corpus::Must(WriteFileAtomic(folder + "/text", "a text of some tokens, and a few more of them"));
  Corpus::Must(WriteTokenFile({folder + "/text"}, "bytes", 0.2, folder + "/tokens").status());
  corpus.Put("token_file", "bytes", ReadFile(folder + "/tokens").value());
  corpus.Put("token_pieces", "four", TokenPieces::Encode({"a", "", "\xffz", " word"}));
  std::filesystem::remove_all(folder);

  const std::string header =
      R"({"__metadata__":{"step":"3"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  corpus.Put("safetensors", "one_array", file + header + std::string(8, '\1'));

  const std::vector<float> numbers(300, 0.5F);
  const std::string block = worker::EncodeShardBlock(std::as_bytes(std::span(numbers)));
  corpus.Put("shard_coding", "two_blocks", block + block);
}

// coordinator/store/fuzz/run_row_fuzz.cc says what its input is: a bit for each column, the lowest
// first (id, name, state, reason, epoch, step, spec, secret, data files, data, plan, checkpoints).
void PutRows(const Corpus& corpus) {
  const auto replacing = [](std::initializer_list<int> columns, const std::string& values) {
    unsigned bits = 0;
    for (const int column : columns) bits |= 1u << column;
    return std::string{static_cast<char>(bits & 0xff), static_cast<char>(bits >> 8)} + values;
  };
  v1::Plan plan;
  plan.mutable_assignment()->set_epoch(2);
  plan.mutable_assignment()->add_cells()->set_worker_id("w0");
  corpus.Put("run_row", "as_it_is", replacing({}, ""));
  corpus.Put("run_row", "plan", replacing({10}, plan.SerializeAsString()));
  corpus.Put("run_row", "epoch_and_step", replacing({4, 5}, "7%%9"));
  corpus.Put("run_row", "refused_checkpoints", replacing({11}, "\x02\x20\x05"));
  for (const char* state :
       {"queued", "planning", "preparing", "running", "finishing", "recovering"}) {
    corpus.Put("run_row", state,
               replacing({2, 10}, std::string(state) + "%%" + plan.SerializeAsString()));
  }
  corpus.Put("run_row", "done",
             replacing({2, 10, 14}, "done%%" + plan.SerializeAsString() + "%%9"));
}

// store_fuzz.cc: offsets and the bytes to put there.
void PutDamages(const Corpus& corpus) {
  const auto put = [](uint32_t offset, uint8_t byte) {
    return std::string{static_cast<char>(offset & 0xff), static_cast<char>(offset >> 8 & 0xff),
                       static_cast<char>(offset >> 16), static_cast<char>(byte)};
  };
  corpus.Put("store", "none", "");
  corpus.Put("store", "refused-cut", put(0xffffff, 16));
  corpus.Put("store", "refused-schema", put(100, 13) + put(0x800010, 7));
  corpus.Put("store", "refused-page_1", put(4096, 0xff));
  corpus.Put("store", "refused-pages_2_and_3", put(8192, 2) + put(12288, 10));
  corpus.Put("store", "refused-version", put(63, 1));
  corpus.Put("store", "text", put(0x800003, 'x') + put(0x800004, '\n'));
}

// Pieces of streams, as the target cuts them: connection, bytes, the bytes.
std::string Pieces(uint8_t connection, std::string_view stream) {
  std::string pieces;
  for (size_t at = 0; at < stream.size(); at += 255) {
    const std::string_view piece = stream.substr(at, 255);
    pieces += {static_cast<char>(connection), static_cast<char>(piece.size())};
    pieces += piece;
  }
  return pieces;
}

void PutCollectives(const Corpus& corpus) {
  using namespace collective;            // NOLINT(google-build-using-namespace)
  using namespace collective::internal;  // NOLINT(google-build-using-namespace)
  const auto join = [](uint32_t rank, uint32_t size) {
    return Encode(MessageKind::kJoin, EncodeJoin({std::string(kSecretBytes, 's'), {rank, size}}));
  };
  const std::string both = Pieces(0, join(0, 2)) + Pieces(1, join(1, 2));
  const std::string tell = Encode(MessageKind::kTell, "a word");
  const std::string goodbye = Encode(MessageKind::kGoodbye, "");
  corpus.Put("collective_message", "told", both + Pieces(0, tell + tell) + Pieces(1, tell));
  corpus.Put("collective_message", "ended", both + Pieces(1, Encode(MessageKind::kEnd, "broken")));
  corpus.Put("collective_message", "goodbyes", both + Pieces(0, goodbye) + Pieces(1, goodbye));
  corpus.Put("collective_message", "refusals",
             both + Pieces(2, join(1, 2)) + Pieces(3, join(2, 3)));
  corpus.Put("collective_message", "words", EncodeTold({"one", "", "three"}));
  const auto put_header = [&](const std::string& name, const Call& call, uint64_t bytes) {
    corpus.Put("collective_header", name,
               host::EncodeHeader({.call = call, .step = 1, .number = 7, .bytes = bytes}));
  };
  put_header("barrier", {.op = Op::kBarrier}, 0);
  put_header("all_reduce", {.op = Op::kAllReduce, .dtype = Dtype::kBf16, .count = 1000}, 500);
  put_header("broadcast", {.op = Op::kBroadcast, .dtype = Dtype::kF32, .root = 3, .count = 9}, 36);
  corpus.Put("collective_header", "hello",
             host::EncodeHello(std::string(host::kHelloSecretBytes, 's'), 3));
}

}  // namespace
}  // namespace longhaul

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: fuzz_corpus FOLDER\n");
    return 2;
  }
  const longhaul::Corpus corpus(argv[1]);
  longhaul::PutBlobs(corpus);
  longhaul::PutPredictions(corpus);
  longhaul::PutArrays(corpus);
  longhaul::PutFrames(corpus);
  longhaul::PutReplicas(corpus);
  longhaul::PutFiles(corpus);
  longhaul::PutRows(corpus);
  longhaul::PutDamages(corpus);
  longhaul::PutCollectives(corpus);
  longhaul::PutPeers(corpus);
  longhaul::PutMembers(corpus);
}
