#include <array>
#include <bit>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/wire/link_header.h"
#include "proto/wire/matrix_digest.h"
#include "proto/wire/message_state.h"
#include "proto/wire/sample_messages.h"
#include "proto/wire/step_message.h"
#include "proto/wire/tensor_header.h"
#include "proto/wire/transfer_word.h"
#include "tests/fuzz/corpus.h"
#include "transport/collective/core/id.h"
#include "transport/collective/core/message.h"
#include "transport/collective/switcher/cache.h"
#include "transport/collective/taco/coder.h"
#include "transport/collective/zip/coder.h"
#include "transport/relay/ticket.h"
#include "worker/pipeline/input_recorder.h"

namespace longhaul {
namespace {

std::string BytesOf(std::initializer_list<int> values) {
  std::string bytes;
  for (const int value : values) bytes += static_cast<char>(value);
  return bytes;
}

// ticket_fuzz.cc has this secret and this nonce.
void PutTickets(const Corpus& corpus) {
  using namespace relay;  // NOLINT(google-build-using-namespace)
  const std::string secret(kSecretBytes, 's'), nonce(kNonceBytes, 'n'), name(kNameBytes, 'e');
  const Ticket ticket = MakeTicket(secret, name, 2'000);
  corpus.Put("relay_ticket", "way", ToString(Way{"203.0.113.7:7071", ticket}));
  corpus.Put("relay_ticket", "way_at_the_coordinator", ToString(Way{":7071", ticket}));
  corpus.Put("relay_ticket", "greeting", Greeting(nonce));
  corpus.Put("relay_ticket", "dialler", Answer(ticket, Side::kDialler, nonce));
  corpus.Put("relay_ticket", "waiter", Answer(ticket, Side::kWaiter, nonce));
  corpus.Put("relay_ticket", "refused-late",
             Answer(MakeTicket(secret, name, 999), Side::kDialler, nonce));
}

void PutStageMessages(const Corpus& corpus) {
  using namespace wire;  // NOLINT(google-build-using-namespace)
  std::array<std::byte, kStepMessageBytes> step;
  EncodeStepMessage({.squared_norm = 2.5, .stop = true, .samples = 2}, step);
  corpus.Put("wire_messages", "step", step);
  corpus.Put("wire_messages", "round",
             EncodeSampleRound({.tokens = 9, .top_k = 40, .lengths = {3, 4}, .stops = {1}}));
  corpus.Put("wire_messages", "sampled", EncodeSampledTokens({.over = true, .tokens = {7, 8, 9}}));
  std::array<std::byte, kMessageStateBytes> state;
  EncodeMessageState({1, 2}, state);
  corpus.Put("wire_messages", "state", state);
  std::array<std::byte, kMatrixDigestBytes> digest;
  EncodeMatrixDigest(7, digest);
  corpus.Put("wire_messages", "digest", digest);
  corpus.Put("wire_messages", "transfer", EncodeTransferWord({.may_go_to = 1 << 20}));
  corpus.Put("wire_messages", "refused-transfer",
             EncodeTransferWord({.refusal = "the disk has no room for it"}));
}

void PutRecording(const Corpus& corpus) {
  worker::InputRecorder recorder(Step{0});
  const std::vector<std::byte> body(40, std::byte{7});
  recorder.Add({.step = Step{1}, .microbatch = Microbatch{2}}, body);
  recorder.Add({.step = Step{2}}, {});
  const std::vector<std::byte> bytes = recorder.Cut(Step{2}).bytes;
  corpus.Put("recording", "two_messages", bytes);
  corpus.Put("recording", "refused-cut", std::span(bytes).first(bytes.size() - 1));
}

// stream_fuzz.cc: u8 size of a piece, the piece.
void PutStreams(const Corpus& corpus) {
  const auto frame = [](size_t bytes) {
    const std::vector<std::byte> payload(bytes, std::byte{5});
    std::array<std::byte, wire::kLinkHeaderBytes> header;
    wire::EncodeLinkHeader({}, payload, {}, header);
    return std::string(reinterpret_cast<const char*>(header.data()), header.size()) +
           std::string(bytes, 5);
  };
  const auto pieces = [](std::string_view stream, size_t size) {
    std::string cut;
    for (size_t at = 0; at < stream.size(); at += size) {
      const std::string_view piece = stream.substr(at, size);
      cut += static_cast<char>(piece.size());
      cut += piece;
    }
    return cut;
  };
  corpus.Put("stream_frames", "two", pieces(frame(100) + frame(0), 255));
  corpus.Put("stream_frames", "small_pieces", pieces(frame(30) + frame(20), 7));
  corpus.Put("stream_frames", "buffer_grows", pieces(frame(9'000), 255));
  std::string huge = frame(0);
  huge[31] = 127;
  corpus.Put("stream_frames", "huge_behind_one", pieces(frame(10) + huge + "more", 200));
  corpus.Put("stream_frames", "refused-huge", pieces(huge + "more", 200));
}

// sealed_fuzz.cc: acts of three bytes.
void PutSealed(const Corpus& corpus) {
  corpus.Put("sealed_messages", "in_order",
             BytesOf({0, 3, 9, 0, 1, 0, 2, 0, 0, 2, 0, 0, 0, 70, 255, 2, 0, 0}));
  corpus.Put("sealed_messages", "repeated", BytesOf({0, 3, 9, 2, 0, 0, 4, 0, 0, 0, 1, 1, 2, 0, 0}));
  corpus.Put("sealed_messages", "changed",
             BytesOf({0, 3, 9, 0, 3, 9, 2, 0, 0, 5, 1, 4, 0, 1, 1, 2, 0, 0}));
  corpus.Put("sealed_messages", "cut", BytesOf({0, 3, 9, 0, 3, 9, 2, 0, 0, 6, 2, 20}));
  corpus.Put("sealed_messages", "refused-own", BytesOf({0, 3, 9, 7, 3, 9, 2, 0, 0}));
  corpus.Put("sealed_messages", "refused-early", BytesOf({0, 3, 9, 0, 3, 9, 4, 1, 0, 2, 0, 0}));
}

// link_machine_fuzz.cc: the setting, then acts of four bytes. Connections count from the newest on.
void PutMachines(const Corpus& corpus) {
  // Two connections, a hello on each (bulk, control), a proof on each.
  const std::string dials =
      BytesOf({0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 4, 0, 1, 0, 5, 1, 0, 0, 5, 0, 0, 0});
  const std::string answers = BytesOf({4, 1, 0, 0, 4, 0, 0, 0, 5, 1, 0, 0, 5, 0, 0, 0});
  const std::string talk =
      BytesOf({6, 1, 0,   9, 6,  0, 0,  3, 14, 0, 0, 50, 14, 0, 1, 60,  11, 1, 1,   0,
               6, 1, 225, 4, 13, 0, 40, 0, 11, 0, 1, 0,  15, 0, 1, 200, 13, 0, 200, 0});
  for (const int sealed : {0, 2}) {
    const std::string name = sealed == 0 ? "plain" : "sealed";
    corpus.Put("link_machine", name + "_dialled_by_the_peer",
               absl::StrCat(BytesOf({sealed}), dials, talk));
    corpus.Put("link_machine", name + "_dialled_by_us",
               absl::StrCat(BytesOf({1 | sealed}), answers, talk));
    corpus.Put("link_machine", "refused-" + name + "_stranger",
               absl::StrCat(BytesOf({4 | sealed}), dials, talk));
    corpus.Put("link_machine", "refused-" + name + "_false_listener",
               absl::StrCat(BytesOf({5 | sealed}), answers, talk));
    // It breaks, and comes back as attempt 1.
    corpus.Put("link_machine", name + "_comes_back",
               BytesOf({sealed}) + dials + talk.substr(0, 16) +
                   BytesOf({9, 0, 0, 0, 9, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1,
                            2, 0, 4, 0, 3, 0, 5, 1, 0, 0, 5, 0, 0, 0, 6, 1, 0, 9}));
  }
  corpus.Put("link_machine", "every_frame",
             BytesOf({0}) + dials + BytesOf({2, 1,  0, 0, 2, 0,  1, 0, 2, 1, 2,  16, 2, 0,
                                             3, 17, 2, 1, 4, 40, 2, 0, 5, 1, 12, 1,  5, 0}));
}

// collective_payload_fuzz.cc: the choice, u16 elements, the bytes.
void PutPayloads(const Corpus& corpus) {
  using namespace collective;  // NOLINT(google-build-using-namespace)
  const auto engine = Engine::ForHost();
  const uint64_t elements = 700;
  const std::string front =
      BytesOf({static_cast<int>(elements & 255), static_cast<int>(elements >> 8)});
  std::vector<uint16_t> numbers(elements);
  for (size_t i = 0; i < elements; ++i) {
    numbers[i] = static_cast<uint16_t>(0x3f80 + i * 7 % 97 + (i % 50 == 0 ? 0x2000 : 0));
  }
  auto zip_coder = zip::Coder::Create(engine.get());
  Corpus::Must(zip_coder.status());
  std::string blob(zip::MostBytes(elements), '\0');
  Corpus::Must(
      (*zip_coder)
          ->Encode(numbers.data(), elements, reinterpret_cast<std::byte*>(blob.data()), {}));
  corpus.Put("collective_payload", "zip", BytesOf({0}) + front + blob);
  corpus.Put("collective_payload", "zip_left_cut", BytesOf({6}) + front + blob);
  corpus.Put("collective_payload", "refused-zip_cut", BytesOf({2}) + front + blob);
  const codec::taco::Params params{.format = codec::taco::Format::kE4m3, .block = 32};
  auto taco_coder = taco::Coder::Create(engine.get(), params);
  Corpus::Must(taco_coder.status());
  std::vector<std::byte> payload((*taco_coder)->Bytes(elements));
  Corpus::Must((*taco_coder)->Encode(numbers.data(), elements, Dtype::kBf16, payload.data(), {}));
  const std::string bytes(reinterpret_cast<const char*>(payload.data()), payload.size());
  corpus.Put("collective_payload", "taco", BytesOf({1 + 128}) + front + bytes + bytes);
  corpus.Put("collective_payload", "taco_int8", BytesOf({1 + 4}) + front + bytes + bytes);

  std::vector<switcher::Probe> probes(1);
  probes[0].points = {{.bytes = 1024, .seconds = {1e-5, 2e-5}},
                      {.bytes = 4096, .seconds = {3e-5, 2e-5}}};
  probes[0].ratios = {1, 1.4};
  corpus.Put("collective_cache", "probe", switcher::FormatCache("two ranks", probes));
  corpus.Put("collective_cache", "refused-key", switcher::FormatCache("others", probes));
  corpus.Put("collective_cache", "id",
             internal::FormatId({.socket = "longhaul-rendezvous-0123456789abcdef",
                                 .secret = std::string(internal::kSecretBytes, 's')}));
}

}  // namespace

void PutPeers(const Corpus& corpus) {
  PutTickets(corpus);
  PutStageMessages(corpus);
  PutRecording(corpus);
  PutStreams(corpus);
  PutSealed(corpus);
  PutMachines(corpus);
  PutPayloads(corpus);
}

}  // namespace longhaul
