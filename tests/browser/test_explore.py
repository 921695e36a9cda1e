"""The explorer as a user meets it: opened, run, moved, and given a broken file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser

DENSITY, LENGTHS, FORMATS = (f".asyncsparse-{part}" for part in ("density", "lengths", "formats"))

# The picture as drawn by the browser, not the widget's bytes.
PIXELS = """
const image = document.querySelector(arguments[0]);
if (!image || !image.complete || image.naturalWidth < 100) return null;
const canvas = document.createElement('canvas');
canvas.width = image.naturalWidth; canvas.height = image.naturalHeight;
canvas.getContext('2d').drawImage(image, 0, 0);
return canvas.toDataURL();
"""


@pytest.fixture(scope="module")
def page(browser: Any, lab: str, screenshots: Path) -> Page:
    page = Page(browser, screenshots)
    browser.get(lab)
    page.until(lambda: "| Idle" in page.text(), "an idle kernel")
    page.click("//div[contains(@class, 'lm-MenuBar-itemLabel')][text()='Run']")
    page.click("//li[@data-command='runmenu:run-all']")
    page.until(lambda: page.pixels(FORMATS), "the pictures")
    return page


class Page:
    """What the tests do with the browser."""

    def __init__(self, browser: Any, screenshots: Path) -> None:
        self.browser = browser
        self.screenshots = screenshots

    def until(self, condition: Callable[[], Any], what: str, seconds: float = 40) -> Any:
        from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
        from selenium.webdriver.support.ui import WebDriverWait

        wait = WebDriverWait(
            self.browser, seconds, 0.1, ignored_exceptions=[StaleElementReferenceException]
        )
        try:
            return wait.until(lambda _: condition())
        except TimeoutException:
            self.photograph("failed")
            pytest.fail(f"waited in vain for {what}; see build/screenshots/failed.png")

    def find(self, xpath: str) -> Any:
        from selenium.webdriver.common.by import By

        return self.until(
            lambda: next(
                (e for e in self.browser.find_elements(By.XPATH, xpath) if e.is_displayed()), None
            ),
            xpath,
        )

    def click(self, xpath: str) -> None:
        self.find(xpath).click()

    def pixels(self, picture: str) -> str | None:
        pixels: str | None = self.browser.execute_script(PIXELS, picture)
        return pixels

    def text(self) -> str:
        text: str = self.browser.execute_script("return document.body.innerText")
        return text

    def photograph(self, name: str, shown: str = DENSITY) -> None:
        script = "document.querySelector(arguments[0])?.scrollIntoView({block: 'center'})"
        self.browser.execute_script(script, shown)
        self.browser.save_screenshot(str(self.screenshots / f"{name}.png"))


def test_it_opens_and_runs_without_a_traceback(page: Page) -> None:
    for picture in (DENSITY, LENGTHS, FORMATS):
        assert page.until(lambda picture=picture: page.pixels(picture), picture)
    page.photograph("opened")
    page.photograph("formats", FORMATS)
    assert "Traceback" not in page.text()


def test_zooming_changes_the_density_and_the_lengths(page: Page) -> None:
    density, lengths = page.pixels(DENSITY), page.pixels(LENGTHS)
    page.click("//button[text()='Zoom in']")
    page.until(lambda: page.pixels(DENSITY) not in (None, density), "another density picture")
    page.until(lambda: page.pixels(LENGTHS) not in (None, lengths), "another picture of lengths")
    page.photograph("zoomed")
    page.click("//button[text()='Whole matrix']")
    page.until(lambda: page.pixels(DENSITY) == density, "the first density picture again")


def test_a_slider_moves_the_block_size(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    formats = page.pixels(FORMATS)
    handle = page.find("//label[text()='BCSR block']/..//div[contains(@class, 'noUi-handle')]")
    handle.send_keys(Keys.ARROW_LEFT)
    page.until(lambda: page.pixels(FORMATS) not in (None, formats), "another picture of formats")


def test_a_broken_file_gives_its_line_and_the_old_picture_keeps_its_name(
    page: Page, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.mtx"
    broken.write_text("%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1.0\n7 7 2.0\n")
    density = page.pixels(DENSITY)
    page.click("//li[contains(@class, 'lm-TabBar-tab')]//div[text()='A file of your own']")
    page.find("//div[contains(@class, 'asyncsparse-file')]//input").send_keys(str(broken))
    page.click("//button[text()='Open']")
    page.until(lambda: "broken.mtx: line 4" in page.text(), "the line about the broken file")
    page.photograph("broken-file")
    assert "still showing time_steps" in page.text()
    assert "Traceback" not in page.text()
    assert page.pixels(DENSITY) == density


def test_a_generator_makes_another_matrix(page: Page) -> None:
    density = page.pixels(DENSITY)
    page.click("//li[contains(@class, 'lm-TabBar-tab')]//div[text()='Generator']")
    page.click("//button[text()='Make it']")
    page.until(lambda: page.pixels(DENSITY) not in (None, density), "the picture of a generator")
    page.until(lambda: "loading" not in page.text(), "the end of loading")
    page.photograph("generated")
    assert "line 4" not in page.text()
    assert "Traceback" not in page.text()
