#include "training_state.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/pending_file.h"
#include "worker/checkpoint/safetensors.h"

namespace longhaul::worker {
namespace {

constexpr std::string_view kTraining = "training", kStep = "step", kSent = "sent_bytes_a_step",
                           kSeconds = "seconds", kParameters = "parameters";

template <class T>
StatusOr<T> NumberIn(const SafetensorsMetadata& metadata, std::string_view key) {
  const auto found = metadata.find(std::string(key));
  T number{};
  if (found != metadata.end()) {
    const std::string& text = found->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) return number;
  }
  return InvalidArgument("expected the state of a training, got a file without its {}", key);
}

}  // namespace

Status SaveState(const std::string& path, const TrainingState& state) {
  std::vector<NamedArray> shapes;
  const auto& [step, parameters, moments, tables] = state.snapshot;
  for (const auto* arrays : {&parameters, &moments}) {
    for (const NamedArray& array : *arrays) shapes.push_back({array.name, array.shape, {}});
  }
  const SafetensorsMetadata metadata = {
      {std::string(kTraining), state.training},
      {std::string(kStep), fmt::format("{}", step)},
      {std::string(kSent), fmt::format("{}", state.sent_bytes_a_step)},
      {std::string(kSeconds), fmt::format("{}", state.seconds)},
      {std::string(kParameters), fmt::format("{}", parameters.size())}};
  LH_ASSIGN_OR_RETURN(const std::unique_ptr<PendingFile> file, PendingFile::Create(path));
  LH_RETURN_IF_ERROR(file->Append(SafetensorsHeader(shapes, metadata)));
  for (const auto* arrays : {&parameters, &moments}) {
    for (const NamedArray& array : *arrays) LH_RETURN_IF_ERROR(file->Append(array.bytes()));
  }
  return file->Publish();
}

StatusOr<std::optional<TrainingState>> LoadState(const std::string& path,
                                                 const std::string& training) {
  if (::access(path.c_str(), F_OK) != 0) return std::optional<TrainingState>();
  LH_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  StatusOr<Safetensors> read = ParseSafetensors(file.bytes());
  if (!read.ok()) return Annotate(read.status(), path);
  const auto named = read->metadata.find(std::string(kTraining));
  if (named == read->metadata.end() || named->second != training) {
    return FailedPrecondition(
        "{}: expected the state of '{}', got that of '{}'; remove the file to "
        "begin anew",
        path, training, named == read->metadata.end() ? "" : named->second);
  }
  TrainingState state{.training = training};
  LH_ASSIGN_OR_RETURN(state.snapshot.step, NumberIn<uint64_t>(read->metadata, kStep));
  LH_ASSIGN_OR_RETURN(state.sent_bytes_a_step, NumberIn<uint64_t>(read->metadata, kSent));
  LH_ASSIGN_OR_RETURN(state.seconds, NumberIn<double>(read->metadata, kSeconds));
  LH_ASSIGN_OR_RETURN(const auto parameters, NumberIn<uint64_t>(read->metadata, kParameters));
  if (parameters > read->arrays.size()) {
    return InvalidArgument("{}: expected {} parameters, got {} arrays", path, parameters,
                           read->arrays.size());
  }
  const auto moments = read->arrays.begin() + static_cast<ptrdiff_t>(parameters);
  state.snapshot.parameters.assign(std::make_move_iterator(read->arrays.begin()),
                                   std::make_move_iterator(moments));
  state.snapshot.moments.assign(std::make_move_iterator(moments),
                                std::make_move_iterator(read->arrays.end()));
  return state;
}

}  // namespace longhaul::worker
