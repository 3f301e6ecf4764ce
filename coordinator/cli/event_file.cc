#include "coordinator/cli/event_file.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <array>
#include <bit>
#include <utility>

namespace longhaul::cli {
namespace {

using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

// The keys of the fields: number, and how the value is written.
constexpr uint32_t kWallTime = 1 << 3 | 1;     // Event.wall_time, double
constexpr uint32_t kStep = 2 << 3 | 0;         // Event.step, int64
constexpr uint32_t kFileVersion = 3 << 3 | 2;  // Event.file_version, string
constexpr uint32_t kSummary = 5 << 3 | 2;      // Event.summary
constexpr uint32_t kValue = 1 << 3 | 2;        // Summary.value
constexpr uint32_t kTag = 1 << 3 | 2;          // Summary.Value.tag, string
constexpr uint32_t kSimpleValue = 2 << 3 | 5;  // Summary.Value.simple_value, float

// Castagnoli's polynomial, bits reflected.
constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t word = i;
    for (int bit = 0; bit < 8; ++bit) word = word >> 1 ^ ((word & 1) != 0 ? 0x82f63b78u : 0);
    table[i] = word;
  }
  return table;
}

uint32_t MaskedCrc(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = MakeTable();
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return std::rotr(~crc, 15) + 0xa282ead8u;
}

// `write(stream)` as bytes.
template <class Write>
std::string Written(const Write& write) {
  std::string bytes;
  {
    StringOutputStream sink(&bytes);
    CodedOutputStream stream(&sink);
    write(stream);
  }
  return bytes;
}

void WriteText(CodedOutputStream& stream, uint32_t key, const std::string& text) {
  stream.WriteTag(key);
  stream.WriteVarint32(static_cast<uint32_t>(text.size()));
  stream.WriteString(text);
}

void WriteTime(CodedOutputStream& stream, double unix_seconds) {
  stream.WriteTag(kWallTime);
  stream.WriteLittleEndian64(std::bit_cast<uint64_t>(unix_seconds));
}

std::string Record(const std::string& payload) {
  return Written([&](CodedOutputStream& stream) {
    const std::string length =
        Written([&](CodedOutputStream& head) { head.WriteLittleEndian64(payload.size()); });
    stream.WriteString(length);
    stream.WriteLittleEndian32(MaskedCrc(length));
    stream.WriteString(payload);
    stream.WriteLittleEndian32(MaskedCrc(payload));
  });
}

}  // namespace

std::string FirstRecord(double unix_seconds) {
  return Record(Written([&](CodedOutputStream& stream) {
    WriteTime(stream, unix_seconds);
    WriteText(stream, kFileVersion, "brain.Event:2");
  }));
}

std::string EventRecord(double unix_seconds, uint64_t step, std::span<const Scalar> scalars) {
  const std::string summary = Written([&](CodedOutputStream& stream) {
    for (const Scalar& scalar : scalars) {
      WriteText(stream, kValue, Written([&](CodedOutputStream& value) {
                  WriteText(value, kTag, scalar.tag);
                  value.WriteTag(kSimpleValue);
                  value.WriteLittleEndian32(std::bit_cast<uint32_t>(scalar.value));
                }));
    }
  });
  return Record(Written([&](CodedOutputStream& stream) {
    WriteTime(stream, unix_seconds);
    if (step > 0) {  // 0 is what a reader takes for a field that is left out
      stream.WriteTag(kStep);
      stream.WriteVarint64(step);
    }
    WriteText(stream, kSummary, summary);
  }));
}

std::vector<Scalar> ScalarsOf(const v1::StepRecord& step) {
  std::vector<Scalar> scalars;
  const auto add = [&](std::string tag, double value) {
    scalars.push_back({std::move(tag), static_cast<float>(value)});
  };
  if (step.has_loss()) add("loss/training", step.loss());
  if (step.has_validation()) add("loss/validation", step.validation_loss());
  if (step.has_clean_validation_loss()) {
    add("loss/validation_clean", step.clean_validation_loss());
  }
  if (step.step() == 0) return scalars;  // a validation and nothing else
  if (step.has_loss()) {
    add("optimizer/gradient_norm", step.gradient_norm());
    add("optimizer/learning_rate", step.learning_rate());
  }
  add("step/seconds", step.seconds());
  add("step/link_bytes", static_cast<double>(step.link_bytes()));
  add("step/payload_bytes", static_cast<double>(step.payload_bytes()));
  if (step.has_expert_load()) {
    add("experts/load_highest", step.expert_load().highest());
    add("experts/load_mean", step.expert_load().mean());
  }
  return scalars;
}

}  // namespace longhaul::cli
