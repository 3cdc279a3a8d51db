"""The project's files, and C++ text without comments and literals."""

import bisect
import os
import pathlib
import re

FOLDERS = (
    "base hwconf store plan transport multicast probes sync simulate include train tools/papers"
    " tools/perf plugins cli scripts tests bench docs"
).split()
CPP_SUFFIXES = (".h", ".cc")
TEXT_SUFFIXES = (".h", ".cc", ".py", ".sh", ".md", ".txt", ".cmake", ".json")
SKIPPED_FOLDERS = {"build", "__pycache__"}


class SourceTree:
    """Files below `root`, build folders and hidden folders left out. Paths are relative, with /."""

    def __init__(self, root):
        self.root = pathlib.Path(root)

    def files(self, suffixes=None):
        for folder, names, files in os.walk(self.root):
            names[:] = sorted(n for n in names if n not in SKIPPED_FOLDERS and n[0] != ".")
            for name in sorted(files):
                path = (pathlib.Path(folder) / name).relative_to(self.root).as_posix()
                if suffixes is None or path.endswith(suffixes):
                    yield path

    def cpp_files(self):
        return self.files(CPP_SUFFIXES)

    def text(self, path):
        return (self.root / path).read_text(encoding="utf-8")

    def exists(self, path):
        return (self.root / path).is_file()


_TOKENS = re.compile(
    r"""//(?:\\\n|[^\n])*            # line comment
      | /\*.*?\*/                    # block comment
      | R"([^()\\\s]{0,16})\(.*?\)\1"   # raw string
      | "(?:\\.|[^"\\\n])*"          # string
      | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'  # character; the look-behind spares 1'000
      """,
    re.VERBOSE | re.DOTALL,
)


def without_comments(text):
    """Same length and lines; comments blanked, literals reduced to their quotes."""

    def blank(match):
        token = match.group(0)
        kept = re.sub(r"[^\n]", " ", token)
        if token[0] == "/":
            return kept
        return '"' + kept[1:-1] + '"'

    return _TOKENS.sub(blank, text)


def without_preprocessor(code):
    """Blanks directives with their continuation lines; `code` has no comments any more."""

    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))

    return re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", blank, code, flags=re.MULTILINE)


class Function:
    """A function definition: lines are 1-based and inclusive, from its signature to its brace."""

    def __init__(self, first_line, last_line, header):
        self.first_line = first_line
        self.last_line = last_line
        self.header = " ".join(header.split())

    @property
    def lines(self):
        return self.last_line - self.first_line + 1


class UnbalancedBraces(Exception):
    pass


_CONTAINER = re.compile(r"(inline\s+|typedef\s+)?(namespace|class|struct|union|enum)\b")
_ACCESS = re.compile(r"\b(public|private|protected)\s*:(?!:)")
_ASSIGNMENT = re.compile(r"(?<![=<>!])=(?!=)")
_PLAIN, _INLINE = "plain", "inline"  # braces that are no function's


def _without_template(header):
    """Drops leading `template <...>` lists."""
    header = header.lstrip()
    while header.startswith("template"):
        depth = 0
        for at, char in enumerate(header):
            depth += (char == "<") - (char == ">" and header[at - 1] != "-")
            if char == ">" and depth == 0:
                header = header[at + 1 :].lstrip()
                break
        else:
            return header
    return header


def _outside_parentheses(header):
    """The header's text outside of () and [], and the depth at its end."""
    depth = 0
    outside = []
    for char in header:
        depth += char in "(["
        if depth == 0:
            outside.append(char)
        depth -= char in ")]"
    return "".join(outside), depth


def _kind_of_brace(header, before_brace):
    """What `{` after `header` opens at namespace or class level: "function", plain or inline.

    Works on the layout that clang-format gives: a body's brace follows a blank, a braced member
    initialiser's does not.
    """
    header = _without_template(header)
    outside, depth = _outside_parentheses(re.sub(r"operator\s*[^\s(\w]+", "operator", header))
    if depth > 0 or not before_brace.isspace():
        return _INLINE
    if "(" not in header or _CONTAINER.match(header):
        return _PLAIN
    if _ASSIGNMENT.search(outside):
        # A lambda is as long as a function can be; other initialisers are data.
        return "function" if re.search(r"=\s*\[", header) else _PLAIN
    return "function"


def functions(text):
    """Definitions at namespace and class level, in order. Raises UnbalancedBraces."""
    code = without_preprocessor(without_comments(text))
    line_at = _line_counter(code)
    found = []
    stack = []  # for every open brace: its Function, _PLAIN, _INLINE, or None inside a function
    header_start = 0
    inside = False
    for match in re.finditer(r"[{};]", code):
        at, char = match.start(), match.group(0)
        if char == "{":
            entry = None
            if not inside:
                # Same length, so that the signature's place stays known.
                header = _ACCESS.sub(lambda m: " " * len(m.group(0)), code[header_start:at])
                entry = _kind_of_brace(header, code[at - 1 : at])
                if entry == "function":
                    first = line_at(header_start + len(header) - len(header.lstrip()))
                    entry = Function(first, first, header)
                    inside = True
                if entry != _INLINE:
                    header_start = at + 1
            stack.append(entry)
        elif char == "}":
            if not stack:
                raise UnbalancedBraces(f"line {line_at(at)}: a '}}' too many")
            entry = stack.pop()
            if isinstance(entry, Function):
                entry.last_line = line_at(at)
                found.append(entry)
                inside = False
            if not inside and entry != _INLINE:
                header_start = at + 1
        elif not inside and (not stack or stack[-1] != _INLINE):
            header_start = at + 1
    if stack:
        raise UnbalancedBraces("a '{' is never closed")
    return found


_WITH_MEMBERS = ("class", "struct", "union")


class Class:
    """A class, struct or union with the names of its data members that end in an underscore."""

    def __init__(self, line, name):
        self.line = line
        self.name = name
        self.members = []


_DATA_NAME = re.compile(r"(?<![\w.:])[A-Za-z]\w*_(?=[ \t\n]*(?:[,{\[:]|$))")


def _data_members(statement):
    """Names that a statement at class level declares, if it declares data."""
    statement = _ACCESS.sub("", statement)
    for nested in (r"\{[^{}]*\}", r"\([^()]*\)(?=[^<>]*>)|<[^<>;]*>", r"alignas\s*\([^()]*\)"):
        count = 1
        while count:
            statement, count = re.subn(nested, " ", statement)
    statement = re.sub(r"=[^,]*", "", statement)
    if "(" in statement or re.match(r"\s*(?:using|friend|static|typedef)\b", statement):
        return []
    return _DATA_NAME.findall(statement.rstrip())


def classes(text):
    """Classes that are no function's own, nested ones too, in the order in which they end."""
    code = without_preprocessor(without_comments(text))
    line_at = _line_counter(code)
    found = []
    stack = []  # For every open brace: its Class, _PLAIN, _INLINE, or None for a function's.
    start = 0
    for match in re.finditer(r"[{};]", code):
        at, char = match.start(), match.group(0)
        inside = None in stack or _INLINE in stack
        if char == "{":
            header = _ACCESS.sub(lambda m: " " * len(m.group(0)), code[start:at])
            entry = None if inside else _kind_of_brace(header, code[at - 1 : at])
            container = _CONTAINER.match(_without_template(header))
            if entry == "function":
                entry = None
            elif entry == _PLAIN and container and container.group(2) in _WITH_MEMBERS:
                name = re.sub(r"alignas\s*\([^()]*\)", "", _without_template(header)).split()
                line = line_at(start + len(header) - len(header.lstrip()))
                entry = Class(line, name[1] if len(name) > 1 else "(no name)")
            elif entry == _PLAIN and not container and any(isinstance(e, Class) for e in stack):
                entry = _INLINE  # `int x_[] = {1};`
            stack.append(entry)
            if entry == _PLAIN or isinstance(entry, Class):
                start = at + 1
        elif char == "}":
            if not stack:
                raise UnbalancedBraces(f"line {line_at(at)}: a '}}' too many")
            entry = stack.pop()
            if isinstance(entry, Class):
                found.append(entry)
            if entry != _INLINE and None not in stack and _INLINE not in stack:
                start = at + 1
        elif not inside:
            if stack and isinstance(stack[-1], Class):
                stack[-1].members += _data_members(code[start:at])
            start = at + 1
    if stack:
        raise UnbalancedBraces("a '{' is never closed")
    return found


def _line_counter(code):
    starts = [0] + [match.end() for match in re.finditer("\n", code)]
    return lambda at: bisect.bisect_right(starts, at)
