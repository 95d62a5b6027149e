"""Finds what must change for `charge(amount)` to become `charge(amount, currency)`, by parsing the source.

Nothing is printed from the syntax tree: each change is a small edit at an exact place, so that every other character of a
file stays as its author wrote it.
"""

from __future__ import annotations

import ast
import bisect
import io
import re
import tokenize
from dataclasses import dataclass, field

TARGET = "charge"
AMOUNT = "amount"
CURRENCY = "currency"
CONSTANT = "DEFAULT_CURRENCY"
OLD_TEXT = re.compile(r"\bcharge\(amount\)")
NEW_TEXT = "charge(amount, currency)"
_ARGUMENT_LINE = re.compile(r"^([ \t]+)amount: .*(?:\n\1[ \t]+\S.*)*", re.MULTILINE)
_FENCE = re.compile(r"(```python\n)(.*?)(\n```)", re.DOTALL)
_ASSERTIONS = ("assert_called_with", "assert_called_once_with", "assert_any_call")


@dataclass(frozen=True)
class Edit:
    """Put `text` in the place of the characters from `start` to `end`."""

    start: int
    end: int
    text: str
    kind: str


@dataclass
class Knowledge:
    """What the whole project says about money.

    Attributes:
        money_fields: Attributes that stand in a class beside `currency`, such as `total` of an invoice.
        takers: Functions and classes that already take an optional currency with an amount.
        default: The house currency, such as EUR.
        module: Where the house currency is defined, for imports.
    """

    money_fields: set[str] = field(default_factory=set)
    takers: set[str] = field(default_factory=set)
    default: str = "EUR"
    module: str | None = None

    def learn(self, tree: ast.Module, module: str) -> None:
        """Take in one file of the source."""
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names = _class_fields(node)
                if CURRENCY in names:
                    self.money_fields |= names - {CURRENCY}
                    if AMOUNT in names:
                        self.takers.add(node.name)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name != TARGET:
                names = {argument.arg for argument in _arguments(node)}
                if AMOUNT in names and CURRENCY in names:
                    self.takers.add(node.name)
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == CONSTANT:
                self.module = module
                if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                    self.default = node.value.value


@dataclass
class Result:
    """One rewritten file."""

    text: str
    definitions: int = 0
    calls: int = 0
    mentions: int = 0
    left: list[str] = field(default_factory=list)


def rewrite_python(text: str, knowledge: Knowledge, *, test: bool) -> Result:
    """Rewrite one Python file; the text is the same when nothing is to do."""
    finder = _Finder(text, knowledge, test=test)
    finder.visit(finder.tree)
    finder.find_mentions()
    finder.add_import()
    changed = apply(text, finder.edits)
    ast.parse(changed)  # an edit that breaks the file must not reach the disk
    count = {kind: sum(edit.kind == kind for edit in finder.edits) for kind in ("definition", "call", "mention")}
    return Result(changed, count["definition"], count["call"], count["mention"], finder.left)


def rewrite_markdown(text: str, knowledge: Knowledge) -> Result:
    """Rewrite a document: what it says about `charge(amount)`, and its Python examples."""
    result = Result(text)

    def example(match: re.Match[str]) -> str:
        try:
            inner = rewrite_python(match[2], knowledge, test=True)
        except SyntaxError:
            return match[0]
        result.calls += inner.calls
        return match[1] + inner.text + match[3]

    result.text = _FENCE.sub(example, text)
    result.text, result.mentions = OLD_TEXT.subn(NEW_TEXT, result.text)
    return result


def apply(text: str, edits: list[Edit]) -> str:
    """Make the edits, from the end so that places stay true."""
    last = len(text) + 1
    for edit in sorted(set(edits), key=lambda edit: (edit.start, edit.end), reverse=True):
        if edit.end > last:
            raise ValueError("two edits touch the same place")
        text = text[: edit.start] + edit.text + text[edit.end :]
        last = edit.start
    return text


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _has_default(node: ast.FunctionDef | ast.AsyncFunctionDef, argument: ast.arg) -> bool:
    positional = [*node.args.posonlyargs, *node.args.args]
    if argument in positional:
        return positional.index(argument) >= len(positional) - len(node.args.defaults)
    return node.args.kw_defaults[node.args.kwonlyargs.index(argument)] is not None


def _class_fields(node: ast.ClassDef) -> set[str]:
    names = set()
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            names.add(item.target.id)
        elif isinstance(item, ast.FunctionDef) and any(
            isinstance(mark, ast.Name) and mark.id == "property" for mark in item.decorator_list
        ):
            names.add(item.name)
    return names


def _is_currency(node: ast.expr) -> bool:
    """Whether an argument already is a currency; tells a call that was changed before from one that was not."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and re.fullmatch(r"[A-Z]{3}", node.value) is not None
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name.lower().endswith(CURRENCY)


class _Finder(ast.NodeVisitor):
    """Walks one file and collects edits."""

    def __init__(self, text: str, knowledge: Knowledge, *, test: bool) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self.edits: list[Edit] = []
        self.left: list[str] = []
        self._knowledge = knowledge
        self._test = test
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self._tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        self._offsets = [self._starts[token.start[0] - 1] + token.start[1] for token in self._tokens[:-1]]
        self._scopes: list[set[str]] = []
        self._needs_constant = False

    # Places

    def _place(self, line: int, column: int) -> int:
        """The offset of a place of the tree, whose columns count bytes."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def _start(self, node: ast.AST) -> int:
        return self._place(node.lineno, node.col_offset)

    def _end(self, node: ast.AST) -> int:
        return self._place(node.end_lineno, node.end_col_offset)

    def _argument_end(self, start: int) -> int:
        """The end of the argument that begins at `start`: before the comma or bracket that follows it."""
        depth = 0
        end = start
        for index in range(bisect.bisect_left(self._offsets, start), len(self._offsets)):
            token = self._tokens[index]
            if token.type in (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT):
                continue
            if depth == 0 and token.string in (",", ")", "]"):
                return end
            depth += (token.string in ("(", "[", "{")) - (token.string in (")", "]", "}"))
            end = self._offsets[index] + len(token.string)
        return end

    def _insert_after(self, start: int, addition: str, kind: str) -> None:
        """Add an argument behind the one that begins at `start`, on a line of its own where that one has one."""
        line_start = self.text.rfind("\n", 0, start) + 1
        lead = self.text[line_start:start]
        separator = ",\n" + lead if lead and not lead.strip() else ", "
        end = self._argument_end(start)
        self.edits.append(Edit(end, end, separator + addition, kind))

    def _open_brackets_before(self, call: ast.Call, start: int) -> int:
        """Where the argument begins if it is wrapped in brackets of its own."""
        begin = bisect.bisect_left(self._offsets, self._end(call.func))
        inside = [index for index in range(begin, len(self._offsets)) if self._offsets[index] < start]
        brackets = [self._offsets[index] for index in inside if self._tokens[index].string == "("]
        return brackets[1] if len(brackets) > 1 else start

    # Definitions

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:  # noqa: N802 - the name ast calls
        names = {argument.arg for argument in _arguments(node)}
        amount = next((argument for argument in _arguments(node) if argument.arg == AMOUNT), None)
        if node.name == TARGET and amount is not None:
            if CURRENCY not in names:
                addition = CURRENCY + (": str" if amount.annotation else "")
                if _has_default(node, amount):
                    literal = f'"{self._knowledge.default}"'
                    addition += f" = {literal}" if amount.annotation else f"={literal}"
                self._insert_after(self._start(amount), addition, "definition")
                self._explain(node)
            names.add(CURRENCY)
        for outside in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(outside)
        self._scopes.append(names)
        for statement in node.body:
            self.visit(statement)
        self._scopes.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:  # noqa: N802
        self._scopes.append({argument.arg for argument in _arguments(node)})
        self.generic_visit(node)
        self._scopes.pop()

    def _explain(self, node: ast.FunctionDef) -> None:
        """Add the new argument to the `Args:` of the docstring."""
        if ast.get_docstring(node) is None:
            return
        start, end = self._start(node.body[0]), self._end(node.body[0])
        match = _ARGUMENT_LINE.search(self.text[start:end])
        if match:
            place = start + match.end()
            self.edits.append(Edit(place, place, f"\n{match[1]}currency: ISO 4217 code, such as EUR.", "docstring"))

    # Calls

    def visit_Call(self, node: ast.Call) -> None:  # noqa: N802
        name = _name(node.func)
        if name == TARGET:
            self._change_call(node)
        elif name in _ASSERTIONS and isinstance(node.func, ast.Attribute) and _name(node.func.value) == TARGET:
            self._change_call(node)
        elif name in self._knowledge.takers and self._in_scope(CURRENCY):
            self._hand_on(node)
        for argument in node.args:
            if _name(argument) == TARGET and isinstance(argument, (ast.Name, ast.Attribute)):
                self.left.append(f"line {argument.lineno}: {TARGET} is handed to {name or 'a call'}; check it by hand")
        self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:  # noqa: N802
        """Calls inside f-strings have no true places before Python 3.12, so they are only pointed out."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call) and _name(inner.func) == TARGET:
                self.left.append(f"line {node.lineno}: a call inside an f-string; change it by hand")

    def _change_call(self, node: ast.Call) -> None:
        by_name = {keyword.arg: keyword for keyword in node.keywords}
        if CURRENCY in by_name or (len(node.args) > 1 and _is_currency(node.args[1])):
            return
        if AMOUNT in by_name:
            keyword = by_name[AMOUNT]
            self._insert_after(self._start(keyword), f"{CURRENCY}={self._currency_of(keyword.value)}", "call")
        elif node.args and not isinstance(node.args[0], ast.Starred):
            start = self._open_brackets_before(node, self._start(node.args[0]))
            self._insert_after(start, self._currency_of(node.args[0]), "call")
        elif node.args or None in by_name:
            self.left.append(f"line {node.lineno}: the arguments are unpacked; change it by hand")

    def _hand_on(self, node: ast.Call) -> None:
        """Inside a function that has a currency now, give it to what takes one."""
        by_name = {keyword.arg: keyword for keyword in node.keywords}
        if CURRENCY in by_name or None in by_name or any(isinstance(one, ast.Starred) for one in node.args):
            return
        if AMOUNT in by_name and _name(by_name[AMOUNT].value) == AMOUNT:
            self._insert_after(self._start(by_name[AMOUNT]), f"{CURRENCY}={CURRENCY}", "handed on")
        elif len(node.args) == 1 and isinstance(node.args[0], ast.Name) and node.args[0].id == AMOUNT:
            self._insert_after(self._start(node.args[0]), CURRENCY, "handed on")

    def _currency_of(self, amount: ast.expr) -> str:
        if self._in_scope(CURRENCY):
            return CURRENCY
        if isinstance(amount, ast.Attribute) and amount.attr in self._knowledge.money_fields:
            owner = ast.get_source_segment(self.text, amount.value)
            if owner and re.fullmatch(r"[\w.]+", owner):
                return f"{owner}.{CURRENCY}"
        if self._test or self._knowledge.module is None:
            return f'"{self._knowledge.default}"'
        self._needs_constant = True
        return CONSTANT

    def _in_scope(self, name: str) -> bool:
        return any(name in scope for scope in self._scopes)

    # Words and imports

    def find_mentions(self) -> None:
        """Bring docstrings and comments up to date."""
        spans = [
            (self._offsets[index], self._offsets[index] + len(token.string))
            for index, token in enumerate(self._tokens[:-1])
            if token.type == tokenize.COMMENT
        ]
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                if ast.get_docstring(node, clean=False) is not None:
                    spans.append((self._start(node.body[0]), self._end(node.body[0])))
        for start, end in spans:
            for match in OLD_TEXT.finditer(self.text, start, end):
                self.edits.append(Edit(match.start(), match.end(), NEW_TEXT, "mention"))

    def add_import(self) -> None:
        """Import the house currency where a call needs it."""
        if not self._needs_constant:
            return
        imports = [node for node in self.tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
        for node in imports:
            if isinstance(node, ast.ImportFrom) and node.module == self._knowledge.module and node.level == 0:
                names = [alias.name for alias in node.names]
                if CONSTANT in names:
                    return
                if node.lineno == node.end_lineno and not any(alias.asname for alias in node.names):
                    line = f"from {node.module} import {', '.join(sorted([*names, CONSTANT]))}"
                    self.edits.append(Edit(self._start(node), self._end(node), line, "import"))
                    return
        place = self._end(imports[-1]) if imports else 0
        line = f"from {self._knowledge.module} import {CONSTANT}"
        self.edits.append(Edit(place, place, f"\n{line}" if imports else f"{line}\n", "import"))


def _name(node: ast.expr) -> str | None:
    """`charge` for both `charge` and `anything.charge`."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None
