"""A page, taken apart as a browser does."""

from html.parser import HTMLParser

VOID = {"meta", "br", "img", "link", "path", "use", "rect", "image"}


class Page(HTMLParser):
    """Its tags with their attributes, its text but for styles, and what is said within each tag. Tags match, nothing
    runs, and nothing is loaded but a picture that the page itself holds."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text, self.said = [], [], "", {}
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        for name, value in attrs:
            held = value.startswith("#") or (tag == "image" and value.startswith("data:image/png;base64,"))
            assert not name.startswith("on")
            assert held or name not in ("src", "href", "xlink:href")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data
            if data.strip():
                self.said.setdefault(self.open[-1], []).append(" ".join(data.split()))
