#include "cli/common.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace selmcast {
namespace {

constexpr std::chrono::milliseconds kRedrawInterval{100};
constexpr std::size_t kBarWidth = 24;

std::size_t terminal_columns(std::FILE* stream) noexcept {
  winsize size{};
  if (::ioctl(::fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

int exit_status_of(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::bad_input:
      return 2;
    case ErrorKind::unavailable:
      return 3;
    case ErrorKind::failed:
      break;
  }
  return 1;
}

std::string one_line(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      line.push_back(c);
    } else if (!line.empty() && line.back() != ' ') {
      line.push_back(' ');
    }
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

int print_error(const Error& error) {
  std::fprintf(stderr, "selmcast: %s\n", one_line(error.message).c_str());
  return exit_status_of(error.kind);
}

void print_notice(std::string_view message) {
  std::fprintf(stderr, "selmcast: note: %s\n", one_line(message).c_str());
}

bool is_terminal(std::FILE* stream) noexcept {
  return stream != nullptr && ::isatty(::fileno(stream)) == 1;
}

Result<JsonOutput> JsonOutput::open(const std::string& path, const std::string& flag) {
  auto file = OutputFile::open(flag, path);
  if (!file) return std::move(file).error();
  JsonOutput output;
  output.silent_ = file->is_standard_output();
  output.file_ = std::move(file).value();
  return output;
}

Result<void> JsonOutput::write(nlohmann::ordered_json document) {
  if (!wanted()) return {};
  nlohmann::ordered_json all;
  all["schema"] = 1;
  all.update(document);
  return file_.write(all.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
                     "\n");
}

Progress::Progress(std::FILE* stream, std::string label, std::uint64_t total)
    : stream_(stream),
      label_(std::move(label)),
      total_(std::max<std::uint64_t>(total, 1)),
      terminal_(is_terminal(stream)) {}

void Progress::draw_bar(std::uint64_t done, std::string_view detail) {
  const std::size_t filled =
      static_cast<std::size_t>(static_cast<double>(done) / static_cast<double>(total_) * kBarWidth);
  std::string line = label_ + " [" + std::string(filled, '#') +
                     std::string(kBarWidth - filled, '.') + "] " + std::to_string(done) + "/" +
                     std::to_string(total_);
  if (!detail.empty()) line.append("  ").append(detail);
  // A line that wraps could not be drawn over.
  line.resize(std::min(line.size(), terminal_columns(stream_) - 1));
  if (line == drawn_) return;
  std::fprintf(stream_, "\r%s\x1b[K", line.c_str());
  std::fflush(stream_);
  drawn_ = std::move(line);
}

void Progress::update(std::uint64_t done, std::string_view detail) {
  if (stream_ == nullptr) return;
  done = std::min(done, total_);
  if (terminal_) {
    const auto now = std::chrono::steady_clock::now();
    if (done < total_ && now < next_draw_) return;
    next_draw_ = now + kRedrawInterval;
    draw_bar(done, detail);
    return;
  }
  if (done < next_line_) return;
  next_line_ = done >= total_ ? total_ + 1 : done + std::max<std::uint64_t>(total_ / 10, 1);
  if (next_line_ > total_ && done < total_) next_line_ = total_;
  std::fprintf(stream_, "%s %llu/%llu%s%.*s\n", label_.c_str(),
               static_cast<unsigned long long>(done), static_cast<unsigned long long>(total_),
               detail.empty() ? "" : "  ", static_cast<int>(detail.size()), detail.data());
  std::fflush(stream_);
}

void Progress::finish() {
  if (stream_ != nullptr && terminal_ && !drawn_.empty()) {
    std::fputc('\n', stream_);
    std::fflush(stream_);
  }
  stream_ = nullptr;
}

}  // namespace selmcast
