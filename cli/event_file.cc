#include "cli/event_file.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "longhaul/v1/event_file.pb.h"

namespace longhaul::cli {
namespace {

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

template <class Number>
std::string LittleEndian(Number number) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

std::string Record(const v1::FileEvent& event) {
  const std::string payload = event.SerializeAsString();
  const std::string length = LittleEndian(uint64_t{payload.size()});
  return length + LittleEndian(MaskedCrc(length)) + payload + LittleEndian(MaskedCrc(payload));
}

}  // namespace

std::string FirstRecord(double unix_seconds) {
  v1::FileEvent event;
  event.set_wall_time(unix_seconds);
  event.set_file_version("brain.Event:2");
  return Record(event);
}

std::string EventRecord(double unix_seconds, uint64_t step, std::span<const Scalar> scalars) {
  v1::FileEvent event;
  event.set_wall_time(unix_seconds);
  event.set_step(static_cast<int64_t>(step));
  for (const Scalar& scalar : scalars) {
    v1::ScalarSummary::Value& value = *event.mutable_summary()->add_value();
    value.set_tag(scalar.tag);
    value.set_simple_value(scalar.value);
  }
  return Record(event);
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
  if (step.has_preference_accuracy()) {
    add("preferences/accuracy", step.preference_accuracy());
    add("preferences/margin", step.preference_margin());
  }
  if (step.has_validation_preference_accuracy()) {
    add("preferences/validation_accuracy", step.validation_preference_accuracy());
    add("preferences/validation_margin", step.validation_preference_margin());
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
